"""Averages the weights of a run's checkpoints (section 6.1 of the paper) into one set of weights for translating.

Examples:
    python -m launch.average_checkpoints --model_dir=runs/mine --average_last=10
    python -m launch.average_checkpoints --model_dir=runs/mine --average_epochs=10
"""

import itertools
import pathlib
import statistics

from absl import flags

from t2t_keras.config import Config
from t2t_keras.errors import InputError
from t2t_keras.machine import remote
from t2t_keras.runs import averaging, checkpoints
from t2t_keras.runs.run import Run, lasting_differences, vocabulary_bytes
from t2t_keras.values import PositiveFloat, PositiveInt

from . import program, remote_paths
from .flag_groups import extensions
from .flag_types import ANY, FOLDER, DEFINE_number, DEFINE_path

_MODEL_DIR = DEFINE_path("model_dir", None, "The run's directory.", FOLDER, required=True)
_AVERAGE_LAST = DEFINE_number("average_last", 10, "Number of newest checkpoints to average.", PositiveInt)
_AVERAGE_EPOCHS = DEFINE_number(
    "average_epochs", None, "Number of last epochs whose checkpoints are averaged instead.", PositiveFloat
)
_CHECKPOINTS = DEFINE_path(
    "checkpoints",
    None,
    "Steps, names or paths of the checkpoints to average instead, separated by commas.",
    ANY,
    is_list=True,
)
_OUTPUT = flags.DEFINE_string(
    "output", None, "Name of the result; default: averaged_lastN, averaged_N_epochs or averaged_N_chosen."
)
flags.adopt_module_key_flags(extensions)
program.REMOTE |= {"model_dir": remote_paths.added_to}


def main(argv: list[str]) -> None:
    """Averages the checkpoints that the flags select and prints their steps."""
    names = [f"--{flag.name}" for flag in (_AVERAGE_LAST, _AVERAGE_EPOCHS, _CHECKPOINTS) if flag.present]
    if len(names) > 1:
        raise InputError(f"{' and '.join(names)} cannot be combined")
    if _CHECKPOINTS.value == []:
        raise InputError("--checkpoints= names no checkpoint")
    run = Run(_MODEL_DIR.value)
    config = run.config
    selection, default_name = _select(run, config)
    _warn_about_close_steps(run, config, selection)
    _warn_about_early_steps(selection)
    output = averaging.save(run, selection, _OUTPUT.value or default_name)
    program.say(
        f"averaged {len(selection)} checkpoints, of steps {', '.join(str(checkpoint.step) for checkpoint in selection)}"
    )
    program.say(remote.with_urls(str(output)))


def _select(run: Run, config: Config) -> tuple[list[checkpoints.Checkpoint], str]:
    """Loads the checkpoints that the flags select; also returns the default name of their average."""
    if _CHECKPOINTS.value:
        paths = _paths_of(run, _CHECKPOINTS.value)
        for path in paths:
            _check_fits(run, config, path)
        return [checkpoints.load(path, weights_only=True) for path in paths], f"averaged_{len(paths)}_chosen"
    if not checkpoints.steps(run.checkpoints_path):
        raise InputError(f"--model_dir={run.path}: there are no checkpoints in {run.checkpoints_path}")
    if (epochs := _AVERAGE_EPOCHS.value) is not None:
        selection, covered = averaging.of_last_epochs(run.checkpoints_path, epochs)
        if covered < 0.9 * epochs:
            program.warn(
                f"warning: the run's checkpoints cover only {covered:.1f} of the {epochs:g} epochs; "
                "train.keep_checkpoints is the number of checkpoints that a run keeps"
            )
        return selection, f"averaged_{epochs:g}_epochs"
    last = _AVERAGE_LAST.value
    paths = checkpoints.newest_paths(run.checkpoints_path, last)
    if len(paths) < last:
        program.say(f"the run has only {len(paths)} of the {last} requested checkpoints")
    return [checkpoints.load(path, weights_only=True) for path in paths], f"averaged_last{last}"


def _paths_of(run: Run, names: list[str]) -> list[pathlib.Path]:
    """Returns the checkpoints with these names; one with two names, such as "best" and its step, counts once."""
    paths: dict[pathlib.Path, pathlib.Path] = {}
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"--checkpoints={','.join(names)}: {name} is given twice")
        path = checkpoints.resolve(run.checkpoints_path, name)
        if path.resolve() in paths:
            program.warn(f"warning: --checkpoints names {path.name} again as {name}; it counts once")
        paths.setdefault(path.resolve(), path)
    return list(paths.values())


def _check_fits(run: Run, config: Config, path: pathlib.Path) -> None:
    """Raises InputError for a checkpoint of a run with different settings or a different vocabulary."""
    other = Run(path.resolve().parent.parent)
    if not other.exists:
        return
    if differences := lasting_differences(config, other.config):
        raise InputError(f"{path} was trained with different settings than --model_dir: {'; '.join(differences)}")
    if vocabulary_bytes(other.vocab_path) != vocabulary_bytes(run.vocab_path):
        raise InputError(f"{path} has a different vocabulary than --model_dir: {other.vocab_path}")


def _warn_about_close_steps(run: Run, config: Config, selection: list[checkpoints.Checkpoint]) -> None:
    """Warns if checkpoints are closer together than the run saves them, which biases the average towards them."""
    folder = run.checkpoints_path.resolve()
    steps = sorted(checkpoint.step for checkpoint in selection if checkpoint.path.resolve().parent == folder)
    gaps = [later - earlier for earlier, later in itertools.pairwise(steps)]
    interval: float
    interval, reason = config.train.checkpoint_steps, f"train.checkpoint_steps={config.train.checkpoint_steps}"
    if gaps and (config.train.checkpoint_minutes or config.train.validation_steps):
        # Intervals in minutes differ in their number of steps, and a validation also saves a checkpoint.
        interval, reason = statistics.median(gaps) / 2, "half the usual interval of this run"
    if pairs := averaging.close_steps(steps, interval):
        places = ", ".join(f"{first} and {second}" for first, second in pairs)
        program.warn(
            f"warning: steps {places} are closer together than {reason}, because a signal or the end of training saves "
            "an extra checkpoint; this biases the average; to choose different ones, give --checkpoints"
        )


def _warn_about_early_steps(selection: list[checkpoints.Checkpoint]) -> None:
    """Warns if the average reaches so far back that it is probably worse than its newest checkpoint."""
    if first_and_last := averaging.excessive_span([checkpoint.step for checkpoint in selection]):
        oldest, newest = first_and_last
        program.warn(
            f"warning: the average covers steps {oldest} to {newest}, and early weights usually make it worse than "
            "the newest checkpoint; train longer, or compare it with --checkpoint=best in launch.evaluate"
        )


run = program.command(main)

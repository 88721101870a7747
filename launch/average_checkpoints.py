"""Averages the weights of a run's checkpoints (section 6.1 of the paper) into one for translating.

python -m launch.average_checkpoints --model_dir=runs/mine --last=10
"""

import pathlib

from absl import flags

from t2t_keras.config import Config, differences
from t2t_keras.errors import InputError
from t2t_keras.run import Run
from t2t_keras.training import checkpoints

from . import program

_MODEL_DIR = flags.DEFINE_string("model_dir", None, "The run's directory.", required=True)
_LAST = flags.DEFINE_integer("last", 10, "How many of the newest checkpoints to average.", lower_bound=1)
_CHECKPOINTS = flags.DEFINE_list("checkpoints", None, "Which checkpoints instead: steps, names or paths, with commas.")
_OUTPUT = flags.DEFINE_string("output", None, "Name of the result; averaged_lastN if not given.")


def main(argv: list[str]) -> None:
    """Averages as the flags say and prints what went in.

    Raises:
        InputError: there are no checkpoints, one is damaged, or they are of different models.
    """
    del argv
    run = Run(_MODEL_DIR.value)
    config = run.config
    paths = _chosen(run, _CHECKPOINTS.value, _LAST.value)
    for path in paths:
        _check_same_model(config, path)
    chosen = [checkpoints.load(path, weights_only=True) for path in paths]
    default_name = f"averaged_{len(paths)}_chosen" if _CHECKPOINTS.value else f"averaged_last{_LAST.value}"
    averaged = checkpoints.save_weights(
        run.checkpoints_path,
        _OUTPUT.value or default_name,
        max(checkpoint.step for checkpoint in chosen),
        checkpoints.average(chosen),
        {"averaged": [str(path) for path in paths]},
    )
    print(f"averaged {len(chosen)} checkpoints, of steps {', '.join(str(checkpoint.step) for checkpoint in chosen)}")
    print(averaged)


def _chosen(run: Run, names: list[str] | None, last: int) -> list[pathlib.Path]:
    """The directories of the checkpoints to average."""
    if names:
        paths = [checkpoints.resolve(run.checkpoints_path, name.strip()) for name in names]
        if len(set(paths)) < len(paths):
            raise InputError(f"--checkpoints={','.join(names)}: one of them is named twice")
        return paths
    steps = checkpoints.steps(run.checkpoints_path)[-last:]
    if not steps:
        raise InputError(f"--model_dir={run.path}: there are no checkpoints in {run.checkpoints_path}")
    if len(steps) < last:
        print(f"there are only {len(steps)} checkpoints of the {last} asked for")
    return [run.checkpoints_path / checkpoints.step_name(step) for step in steps]


def _check_same_model(config: Config, path: pathlib.Path) -> None:
    """Refuses a checkpoint of another run with another model: equal shapes do not make equal models."""
    other = Run(path.resolve().parents[1])
    changed = differences(config, other.config) if other.exists else []
    if changed := [change for change in changed if change.startswith("model.")]:
        raise InputError(f"{path} is of another model than that of --model_dir: {'; '.join(changed)}")


def run() -> None:
    """The console command."""
    program.run(main)


if __name__ == "__main__":
    run()

"""Exports a run's model for TensorFlow Serving as the next version: EXPORT_DIR/1, EXPORT_DIR/2 and so on.

The decoding settings are fixed in the export. They are the settings of the run, unless a flag overrides them.

Examples:
    python -m launch.export --model_dir=runs/mine --export_dir=saved_models/mine
    python -m launch.export --model_dir=runs/mine --export_dir=saved_models/mine --average_last=10 --weights=bfloat16
"""

import os
import pathlib
import time

from absl import flags

from t2t_keras.errors import InputError
from t2t_keras.export_contract import WEIGHTS
from t2t_keras.machine import remote, remote_exports
from t2t_keras.machine.notices import without_notices
from t2t_keras.runs import averaging, checkpoints
from t2t_keras.runs.run import Run
from t2t_keras.values import PositiveInt

from . import program, remote_paths
from .flag_groups import decoding_flags, engine_flags, model_flags, setting_flags, split_flags
from .flag_types import NEW_FOLDER, DEFINE_number, DEFINE_path

_EXPORT_DIR = DEFINE_path(
    "export_dir", None, "The served model's directory, such as saved_models/mine.", NEW_FOLDER, required=True
)
_AVERAGE_LAST = DEFINE_number("average_last", None, "Number of newest checkpoints to average first.", PositiveInt)
_WEIGHTS = flags.DEFINE_enum(
    "weights", "float32", ["float32", "bfloat16"], "Number format of the stored weights; bfloat16 halves their size."
)
flags.adopt_module_key_flags(decoding_flags)
flags.adopt_module_key_flags(split_flags)
flags.mark_flag_as_required("model_dir")
program.REMOTE |= {"model_dir": remote_paths.model, "export_dir": remote_paths.place}


def main(argv: list[str]) -> None:
    """Exports the model and prints a summary."""
    if model_flags.ENSEMBLE.value:
        raise InputError("--ensemble: an ensemble cannot be exported; average checkpoints of one run instead")
    if (engine := engine_flags.ENGINE.value) != "tensorflow":
        raise InputError(f"--engine={engine}: an export searches with TensorFlow; omit the flag")
    if _AVERAGE_LAST.value and model_flags.CHECKPOINT.value:
        raise InputError("give either --checkpoint or --average_last, not both")
    run = Run(model_flags.MODEL_DIR.value)
    config = run.config
    paths = _select_checkpoints(run)
    if paths and not _AVERAGE_LAST.value:
        flags.FLAGS.checkpoint = os.path.abspath(paths[0])  # a running training may write a later one meanwhile
    translator = decoding_flags.load_translator(**setting_flags.values(split_flags.SETTINGS))
    from t2t_keras.export.writing import export_translator
    from t2t_keras.models.weights import assign_weights

    model = translator.single_model
    if _AVERAGE_LAST.value:
        assign_weights(model, averaging.average([checkpoints.load(path, True) for path in paths]))
    parameters = sum(model.config.parameter_counts().values())
    names = ", ".join(path.name for path in paths) or remote.with_urls(model_flags.MODEL_DIR.value)
    search = f"beam {translator.config.beam_size}, length penalty {translator.config.length_penalty:g}"
    program.say(f"weights of {names}: {parameters:,} parameters; {search}; tracing takes a minute or two")
    start = time.monotonic()
    with without_notices():
        origin = {"run": pathlib.Path(os.path.abspath(run.path)).name, "checkpoints": [path.name for path in paths]}
        version = export_translator(translator, config, _EXPORT_DIR.value, _WEIGHTS.value, origin)
    seconds = time.monotonic() - start
    weights = sum(path.stat().st_size for path in (version / WEIGHTS).parent.iterdir())
    on_disk = sum(path.stat().st_size for path in version.rglob("*") if path.is_file())
    sizes = f"{on_disk / 1e6:,.1f} MB, of which weights as {_WEIGHTS.value} {weights / 1e6:,.1f}"
    program.say(f"{remote_exports.published(version)}: {sizes}; written in {seconds:.0f} s")


def _select_checkpoints(run: Run) -> list[pathlib.Path]:
    """Returns the checkpoints whose weights are exported; none if the model is itself an export."""
    if run.exported:
        if _AVERAGE_LAST.value:
            raise InputError(f"--average_last: {run.path} is an exported model, which has no checkpoints to average")
        return []
    if not _AVERAGE_LAST.value:
        return [checkpoints.resolve(run.checkpoints_path, model_flags.CHECKPOINT.value)]
    paths = checkpoints.newest_paths(run.checkpoints_path, _AVERAGE_LAST.value)
    if len(paths) < _AVERAGE_LAST.value:
        raise InputError(
            f"--average_last={_AVERAGE_LAST.value}: {run.checkpoints_path} has only {len(paths)} checkpoints"
        )
    return paths


run = program.command(main)

"""Converts a model of another project into a run, or a run into the format of another project.

Examples:
    python -m launch.convert --from=huggingface --input=opus-mt-en-de --model_dir=runs/opus
    python -m launch.convert --to=huggingface --model_dir=runs/mine --output=mine_for_transformers
"""

import dataclasses
import os
import pathlib
from typing import TYPE_CHECKING

from absl import flags

from t2t_keras.errors import InputError
from t2t_keras.formats.files.model_folders import local_folder
from t2t_keras.formats.known_formats import READERS, WRITERS
from t2t_keras.machine.files import new_folder, write_json
from t2t_keras.runs import checkpoints
from t2t_keras.runs.run import IMPORTED, Run, weights_path
from t2t_keras.text.tokenizer import Tokenizer

from . import program
from .flag_types import ANY, NEW_FOLDER, DEFINE_path

if TYPE_CHECKING:
    from t2t_keras.formats.portable_model import PortableModel

_FROM = flags.DEFINE_enum("from", None, READERS, "The project whose format --input is in.")
_TO = flags.DEFINE_enum("to", None, WRITERS, "The project whose format --output is written in.")
_INPUT = flags.DEFINE_string("input", None, "With --from: the folder of the model; hf://OWNER/NAME is downloaded.")
_OUTPUT = DEFINE_path("output", None, "With --to: a new folder to write.", NEW_FOLDER)
_MODEL_DIR = DEFINE_path("model_dir", None, "The run's directory; with --from, a new one.", ANY, required=True)
_CHECKPOINT = DEFINE_path("checkpoint", None, "With --to: the weights to write, as in launch.translate.", ANY)
_QUANTIZATION = flags.DEFINE_enum(
    "quantization", "float32", ["float32", "float16", "bfloat16", "int8"], "With --to: number format of the weights."
)
_SOURCE_LANGUAGE = flags.DEFINE_string("source_language", None, "With --from: overrides the language in the files.")
_TARGET_LANGUAGE = flags.DEFINE_string("target_language", None, "With --from: overrides the language in the files.")
_ONLY_IN, _ONLY_OUT = (_INPUT, _SOURCE_LANGUAGE, _TARGET_LANGUAGE), (_OUTPUT, _CHECKPOINT, _QUANTIZATION)


def main(argv: list[str]) -> None:
    """Converts in the direction that the flags select."""
    if bool(_FROM.value) == bool(_TO.value):
        raise InputError("give either --from or --to")
    for direction, folder in ((_FROM, _INPUT), (_TO, _OUTPUT)):
        if direction.value and not folder.value:
            raise InputError(f"--{direction.name} requires --{folder.name}")
    for flag in _ONLY_OUT if _FROM.value else _ONLY_IN:
        if flag.present:
            raise InputError(f"--{flag.name} cannot be combined with --{'from' if _FROM.value else 'to'}")
    if _FROM.value:
        _import()
    else:
        _export()


def _import() -> None:
    languages = {"source_language": _SOURCE_LANGUAGE.value, "target_language": _TARGET_LANGUAGE.value}
    overrides = {name: value for name, value in languages.items() if value}
    folder = local_folder(os.path.expanduser(_INPUT.value))
    from t2t_keras.formats.portable_model import check_model

    model = READERS[_FROM.value](folder, overrides)
    config = dataclasses.replace(model.config, data=dataclasses.replace(model.config.data, **overrides))
    model = dataclasses.replace(model, config=config)
    check_model(_INPUT.value, model)
    origin = {"format": _FROM.value, "input": _INPUT.value}
    with new_folder(_MODEL_DIR.value) as folder:
        run = Run(folder)
        model.tokenizer.save(run.vocab_path)
        checkpoints.save_weights(run.checkpoints_path, "imported", 0, model.weights, {IMPORTED: origin})
        write_json(run.config_path, {**config.to_dict(), IMPORTED: origin})
    notes = list(model.notes)
    if not model.knows_languages:
        direction = f"{config.data.source_language}, {config.data.target_language}"
        notes.append(f"{_INPUT.value} does not name its languages; assumed: {direction}")
    _report(model, notes, _MODEL_DIR.value)


def _export() -> None:
    run = Run(_MODEL_DIR.value)
    config, path = run.config, weights_path(run, _CHECKPOINT.value)
    from t2t_keras.formats.portable_model import PortableModel
    from t2t_keras.runs.load import load_weights

    model = PortableModel(config, load_weights(path), Tokenizer.load(run.vocab_path))
    with new_folder(_OUTPUT.value) as folder:
        notes = list(WRITERS[_TO.value](model, folder, _QUANTIZATION.value))
    if run.excluded:
        notes.append(
            f"the converted model does not exclude the words that this export excludes: {', '.join(run.excluded)}"
        )
    _report(model, notes, _OUTPUT.value)


def _report(model: "PortableModel", notes: list[str] | tuple[str, ...], path: str) -> None:
    count = sum(array.size for array in model.weights.values())
    for note in notes:
        program.say(f"note: {note}")
    program.say(f"{pathlib.Path(path)}: {count:,} parameters")


run = program.command(main)

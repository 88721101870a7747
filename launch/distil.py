"""Writes new training text: replaces one side of parallel text with translations by teacher models.

With --direction=forward, teachers translate the sources, for sequence-level distillation. With --direction=back,
teachers of the reverse direction translate the targets, for back-translation. Line n of the outputs belongs to line n
of the text. After an interruption, run the same command to resume.

Examples:
    python -m launch.distil --direction=forward --model_dir=runs/mine --source=a.en --target=a.de \\
        --choose=nearest --beam_size=8 --output_source=forward.en --output_target=forward.de
    python -m launch.distil --direction=back --model_dir=runs/reverse --source=a.en --target=a.de \\
        --output_source=back.en --output_target=back.de
"""

import dataclasses
import pathlib
import sys
from typing import Any, get_args

import tqdm
from absl import flags

from t2t_keras.config import DecodeConfig
from t2t_keras.distillation import Choice, Direction, Distillation, distil
from t2t_keras.errors import InputError
from t2t_keras.runs.run import Run, weights_file, weights_path
from t2t_keras.tasks.registry import task
from t2t_keras.values import PositiveInt

from . import program, remote_paths
from .flag_groups import decoding_flags, engine_flags, model_flags, setting_flags, split_flags
from .flag_types import FILE, NEW_FILE, DEFINE_number, DEFINE_path

_SOURCE = DEFINE_path("source", None, "Sources: UTF-8 text, also .gz .bz2 .xz.", FILE, required=True)
_TARGET = DEFINE_path("target", None, "Human translations of the sources, line by line.", FILE, required=True)
_OUTPUT_SOURCE = DEFINE_path("output_source", None, "File for the sources of the new pairs.", NEW_FILE, required=True)
_OUTPUT_TARGET = DEFINE_path("output_target", None, "File for the targets of the new pairs.", NEW_FILE, required=True)
_DIRECTION = flags.DEFINE_enum(
    "direction",
    None,
    get_args(Direction),
    "The side that is translated; forward: the sources; back: the targets, with teachers of the reverse direction.",
    required=True,
)
_CHOOSE = flags.DEFINE_enum(
    "choose",
    "best",
    get_args(Choice),
    "The translation that is written; best: the one with the best score, as in launch.translate; nearest: of "
    "--num_best, the one with the highest sentence BLEU against the side that it replaces.",
)
_NUM_BEST = DEFINE_number(
    "num_best", None, "With --choose=nearest: number of translations compared; default: --beam_size.", PositiveInt
)
flags.adopt_module_key_flags(decoding_flags)
flags.adopt_module_key_flags(split_flags)
flags.mark_flag_as_required("model_dir")
program.REMOTE |= {"model_dir": remote_paths.model, "ensemble": remote_paths.member}


def main(argv: list[str]) -> None:
    """Writes the two outputs that the flags name."""
    for output in (_OUTPUT_SOURCE, _OUTPUT_TARGET):
        program.refuse_replacing(output.value, _SOURCE.value, _TARGET.value, flag=output.name)
    overrides = setting_flags.values(split_flags.SETTINGS)
    config = decoding_flags.decode_config(**overrides)
    with tqdm.tqdm(unit=" pairs", disable=not sys.stderr.isatty()) as bar:

        def update(done: int, pairs: int) -> None:
            bar.total = pairs
            bar.update(done - bar.n)

        num_cut = distil(_job(config), lambda: decoding_flags.load_translator(**overrides), program.say, update)
    decoding_flags.warn_of_cut(num_cut, config)


def _job(config: DecodeConfig) -> Distillation:
    data = Run(model_flags.MODEL_DIR.value).config.data
    if task(data.task).metric != "bleu":
        raise InputError(
            f"--model_dir={model_flags.MODEL_DIR.value}: a teacher must translate; this model is for {data.task}"
        )
    return Distillation(
        source=pathlib.Path(_SOURCE.value),
        target=pathlib.Path(_TARGET.value),
        output_source=pathlib.Path(_OUTPUT_SOURCE.value),
        output_target=pathlib.Path(_OUTPUT_TARGET.value),
        direction=_DIRECTION.value,
        choose=_CHOOSE.value,
        num_best=_num_best(config),
        language=data.target_language,
        teachers=[weights_file(weights_path(Run(each.model_dir), each.checkpoint)) for each in model_flags.members()],
        settings=_search(config),
    )


def _num_best(config: DecodeConfig) -> int:
    if _CHOOSE.value == "best":
        if _NUM_BEST.value:
            raise InputError("--num_best requires --choose=nearest")
        return 1
    number = _NUM_BEST.value or config.beam_size
    if number > config.beam_size:
        raise InputError(f"--num_best={number} is more than --beam_size={config.beam_size}")
    return number


def _search(config: DecodeConfig) -> dict[str, Any]:
    """Returns the settings of the search, except the teachers and the choice."""
    return {
        **dataclasses.asdict(config),
        "engine": engine_flags.ENGINE.value,
        "compute_type": engine_flags.COMPUTE_TYPE.value,
        "ensemble_mean": model_flags.ENSEMBLE_MEAN.value if model_flags.ENSEMBLE.value else None,
        "exclude": decoding_flags.EXCLUDE.value,
    }


run = program.command(main)

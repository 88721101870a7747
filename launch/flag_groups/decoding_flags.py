"""The flags of all programs that translate, in addition to those of the model; programs adopt them."""

import dataclasses
import sys
from typing import TYPE_CHECKING, Any, get_args

from absl import flags

from t2t_keras.config import DecodeConfig
from t2t_keras.config.decode_config import ComputeType, EngineName
from t2t_keras.text.terms import Glossary

from . import model_flags, setting_flags

if TYPE_CHECKING:
    from t2t_keras.inference.translator import Translator

ENGINE = flags.DEFINE_enum(
    "engine",
    "tensorflow",
    get_args(EngineName),
    "What searches; ctranslate2: faster on a CPU, with a Transformer; what it found is scored and ordered by "
    "--length_penalty as with tensorflow, and not by its own formula, log-probability / length^alpha.",
)
COMPUTE_TYPE = flags.DEFINE_enum(
    "compute_type",
    "float32",
    get_args(ComputeType),
    "How ctranslate2 multiplies; int8: faster, and some outputs differ; bfloat16: on a GPU.",
)
EXCLUDE = flags.DEFINE_multi_string("exclude", [], "A word or phrase that no translation may contain.")
_OTHER_SETTINGS = (*model_flags.SCORING, "split")
_SETTINGS = setting_flags.define(
    DecodeConfig, *(field.name for field in dataclasses.fields(DecodeConfig) if field.name not in _OTHER_SETTINGS)
)
flags.adopt_module_key_flags(model_flags)


def warn_of_cut(number: int, config: DecodeConfig) -> None:
    """Says on standard error, if there are any, how many outputs were cut at the limit, and what raises it."""
    if number:
        limit = f"{config.max_length_factor:g} x source + {config.max_length_offset} tokens"
        raising = "--max_length_factor and --max_length_offset raise it"
        outputs = "1 output was" if number == 1 else f"{number:,} outputs were"
        print(f"warning: {outputs} cut at the limit of {limit}; {raising}", file=sys.stderr)


def decode_config(**overrides: Any) -> DecodeConfig:
    """Like `model_flags.decode_config`, with all decoding settings of the flags, and `overrides`."""
    return model_flags.decode_config({**setting_flags.values(_SETTINGS), **overrides})


def load_translator(glossary: Glossary | None = None, **overrides: Any) -> "Translator":
    """Like `model_flags.load_translator`, with all decoding settings of the flags, and `overrides`."""
    settings = {**setting_flags.values(_SETTINGS), **overrides}
    return model_flags.load_translator(settings, EXCLUDE.value, ENGINE.value, COMPUTE_TYPE.value, glossary)

"""The flags of all programs that translate, in addition to those of the model; programs adopt them."""

import dataclasses
import sys
from typing import TYPE_CHECKING, Any, get_args

from absl import flags

from t2t_keras.config import DecodeConfig
from t2t_keras.config.decode_config import ComputeType, EngineName
from t2t_keras.inference.translator_settings import TranslatorSettings
from t2t_keras.text.terms import Glossary

from . import model_flags, protection_flags, setting_flags

if TYPE_CHECKING:
    from t2t_keras.inference.translator import Translator

ENGINE = flags.DEFINE_enum(
    "engine",
    "tensorflow",
    get_args(EngineName),
    "The engine of the search; ctranslate2 is faster on a CPU, for a Transformer; its results are scored "
    "and sorted by --length_penalty as with tensorflow, not by its own formula, log-probability / length^alpha.",
)
COMPUTE_TYPE = flags.DEFINE_enum(
    "compute_type",
    "float32",
    get_args(ComputeType),
    "Number format of ctranslate2; int8 is faster, but some outputs differ; bfloat16 needs a GPU.",
)
EXCLUDE = flags.DEFINE_multi_string("exclude", [], "A word or phrase that no translation may contain.")
_OTHER_SETTINGS = (*model_flags.SCORING, "split", "case", "protect")
_SETTINGS = setting_flags.define(
    DecodeConfig, *(field.name for field in dataclasses.fields(DecodeConfig) if field.name not in _OTHER_SETTINGS)
)
flags.adopt_module_key_flags(model_flags)
flags.adopt_module_key_flags(protection_flags)


def warn_of_cut(number: int, config: DecodeConfig) -> None:
    """Warns on standard error if outputs were cut at the limit; names the flags that raise it."""
    if number:
        limit = f"{config.max_length_factor:g} x source + {config.max_length_offset} tokens"
        raising = "to raise it, give --max_length_factor and --max_length_offset"
        outputs = "1 output was" if number == 1 else f"{number:,} outputs were"
        print(f"warning: {outputs} cut at the limit of {limit}; {raising}", file=sys.stderr)


def decode_config(**changes: Any) -> DecodeConfig:
    """Returns `model_flags.decode_config` with all decoding settings of the flags, and `changes`."""
    return model_flags.decode_config(**{**setting_flags.values(_SETTINGS), **protection_flags.values(), **changes})


def load_translator(glossary: Glossary | None = None, **changes: Any) -> "Translator":
    """Loads the translator of the run or the ensemble with all settings of the flags, and `changes` of decoding."""
    decode = decode_config(**changes)
    settings = TranslatorSettings(decode, EXCLUDE.value, glossary, ENGINE.value, COMPUTE_TYPE.value)
    return model_flags.load_translator(settings)

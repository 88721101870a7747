"""The flags of all programs that translate, in addition to those of the model; programs adopt them."""

import dataclasses
from typing import TYPE_CHECKING, Any

from absl import flags

from t2t_keras.config import DecodeConfig
from t2t_keras.inference.translator_settings import TranslatorSettings
from t2t_keras.text.terms import Glossary

from .. import program
from . import engine_flags, model_flags, setting_flags

if TYPE_CHECKING:
    from t2t_keras.inference.translator import Translator

EXCLUDE = flags.DEFINE_multi_string("exclude", [], "A word or phrase that no translation may contain.")
_OTHER_SETTINGS = (*model_flags.SCORING, "split", "protect", "case")
_SETTINGS = setting_flags.define(
    DecodeConfig, *(field.name for field in dataclasses.fields(DecodeConfig) if field.name not in _OTHER_SETTINGS)
)
flags.adopt_module_key_flags(model_flags)
flags.adopt_module_key_flags(engine_flags)


def warn_of_cut(number: int, config: DecodeConfig) -> None:
    """Warns on standard error if outputs were cut at the limit; names the flags that raise it."""
    if number:
        limit = f"{config.max_length_factor:g} x source + {config.max_length_offset} tokens"
        raising = "to raise it, give --max_length_factor and --max_length_offset"
        outputs = "1 output was" if number == 1 else f"{number:,} outputs were"
        program.warn(f"warning: {outputs} cut at the limit of {limit}; {raising}")


def report_of_long(number: int) -> str:
    """Returns a sentence about the number of lines that were too long, which must be positive."""
    lines, were = ("1 line", "was") if number == 1 else (f"{number:,} lines", "were")
    return f"{lines} {were} too long and {were} translated in parts"


def decode_config(**changes: Any) -> DecodeConfig:
    """Returns `model_flags.decode_config` with all decoding settings of the flags, and `changes`."""
    return model_flags.decode_config(**{**setting_flags.values(_SETTINGS), **engine_flags.protection(), **changes})


def load_translator(glossary: Glossary | None = None, **changes: Any) -> "Translator":
    """Loads the translator of the run or the ensemble with all settings of the flags, and `changes` of decoding."""
    decode = decode_config(**changes)
    settings = TranslatorSettings(decode, EXCLUDE.value, glossary, *engine_flags.engine())
    return model_flags.load_translator(settings)

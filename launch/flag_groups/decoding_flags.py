"""The flags of all programs that translate, in addition to those of the model; programs adopt them."""

import dataclasses
from typing import TYPE_CHECKING, Any

from absl import flags

from t2t_keras.config import DecodeConfig
from t2t_keras.text.protection.spans import patterns
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


def _values() -> dict[str, Any]:
    """Returns the decoding settings of the flags; raises an InputError if --protect is not valid."""
    values = setting_flags.values((*_SETTINGS, engine_flags.CASE))
    if (protect := engine_flags.PROTECT.value) is not None:
        patterns(protect)
        values["protect"] = tuple(protect)
    return values


def decode_config(**overrides: Any) -> DecodeConfig:
    """Returns `model_flags.decode_config` with all decoding settings of the flags, and `overrides`."""
    return model_flags.decode_config({**_values(), **overrides})


def load_translator(glossary: Glossary | None = None, **overrides: Any) -> "Translator":
    """Calls `model_flags.load_translator` with all decoding settings of the flags, and `overrides`."""
    settings = {**_values(), **overrides}
    engine, compute_type = engine_flags.ENGINE.value, engine_flags.COMPUTE_TYPE.value
    return model_flags.load_translator(settings, EXCLUDE.value, engine, compute_type, glossary)

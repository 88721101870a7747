"""The flags for spans and case that a translation keeps; programs that translate or serve adopt them."""

from typing import Any

from absl import flags

from t2t_keras.config import DecodeConfig
from t2t_keras.text.protection.spans import patterns

from . import setting_flags

_PROTECT = flags.DEFINE_multi_string(
    "protect",
    None,
    "Spans that translations repeat unchanged: urls, emails, numbers (with units, and versions) and files, separated "
    "by commas, or a regular expression; 'nothing' also stops the protection of characters that the training text "
    f"never had{setting_flags.DEFAULT}",
)
_SETTINGS = setting_flags.define(DecodeConfig, "case")


def values() -> dict[str, Any]:
    """Returns the decoding settings of the given flags, by name; raises an InputError if --protect is not valid."""
    settings = setting_flags.values(_SETTINGS)
    if _PROTECT.value is not None:
        patterns(_PROTECT.value)
        settings["protect"] = tuple(_PROTECT.value)
    return settings

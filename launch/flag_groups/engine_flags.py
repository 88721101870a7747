"""The flags of all programs that search: the engine, and the spans that it must not translate."""

from typing import Any, get_args

from absl import flags

from t2t_keras.config import DecodeConfig
from t2t_keras.config.decode_config import ComputeType, EngineName
from t2t_keras.errors import InputError
from t2t_keras.text.protection.spans import patterns

from . import setting_flags

ENGINE = flags.DEFINE_enum(
    "engine",
    "tensorflow",
    get_args(EngineName),
    "The engine of the search; ctranslate2 is faster on a CPU, but supports only Transformers; its results are scored "
    "and sorted as with tensorflow. A server uses it for plain and n-best translations.",
)
COMPUTE_TYPE = flags.DEFINE_enum(
    "compute_type",
    "float32",
    get_args(ComputeType),
    "Number format of ctranslate2; int8 is faster, but some outputs differ; bfloat16 needs a GPU.",
)
PROTECT = flags.DEFINE_multi_string(
    "protect",
    None,
    "Spans that translations repeat unchanged: urls, emails, numbers (with units, and versions) and files, separated "
    "by commas, or a regular expression; 'nothing' also disables the protection of characters that the training text "
    "does not contain; default: that of the model.",
)
_SETTINGS = setting_flags.define(DecodeConfig, "case")


def engine() -> tuple[EngineName, ComputeType]:
    """Returns the engine and its number format; raises an InputError if they cannot be combined."""
    if ENGINE.value == "tensorflow" and COMPUTE_TYPE.value != "float32":
        raise InputError(f"--compute_type={COMPUTE_TYPE.value} requires --engine=ctranslate2")
    return ENGINE.value, COMPUTE_TYPE.value


def protection() -> dict[str, Any]:
    """Returns the decoding settings of --protect and --case by name; raises an InputError if --protect is not valid."""
    settings = setting_flags.values(_SETTINGS)
    if PROTECT.value is not None:
        patterns(PROTECT.value)
        settings["protect"] = tuple(PROTECT.value)
    return settings

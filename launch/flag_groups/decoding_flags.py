"""The flags of all programs that translate, in addition to those of the model; programs adopt them."""

import sys
from typing import get_args

from absl import flags

from t2t_keras.config import DecodeConfig
from t2t_keras.inference.loading import EngineName
from t2t_keras.inference.translator import Translator

from .. import quiet_tensorflow
from . import model_flags, setting_flags

ENGINE = flags.DEFINE_enum(
    "engine",
    "tensorflow",
    get_args(EngineName),
    "What computes searches; lite: TensorFlow Lite, faster on a CPU, once it has converted; lite_int8: in 8 bits.",
)
_EXCLUDE = flags.DEFINE_multi_string("exclude", [], "A word or phrase that no translation may contain.")
_SETTINGS = setting_flags.define(
    DecodeConfig,
    "beam_size",
    "min_length",
    "max_length_offset",
    "max_length_factor",
    "patience",
    "ends_within_beam",
    "coverage_penalty",
    "no_repeat_ngram_size",
    "num_groups",
    "diversity_strength",
    "sampling",
    "temperature",
    "top_k",
    "top_p",
    "seed",
    "bfloat16",
)
flags.adopt_module_key_flags(model_flags)


def warn_of_cut(number: int, config: DecodeConfig) -> None:
    """Says on standard error, if there are any, how many outputs were cut at the limit, and what raises it."""
    if number:
        limit = f"{config.max_length_factor:g} x source + {config.max_length_offset} tokens"
        raising = "--max_length_factor and --max_length_offset raise it"
        print(f"warning: {number:,} outputs were cut at the limit of {limit}; {raising}", file=sys.stderr)


def load_translator() -> Translator:
    """Like `model_flags.load_translator`, with all decoding settings of the flags."""
    if ENGINE.value != "tensorflow":
        quiet_tensorflow.start_lite()
    return model_flags.load_translator(setting_flags.given(_SETTINGS), _EXCLUDE.value, ENGINE.value)

"""The flags that all programs which translate have in common, beside those of the model; programs adopt them."""

from typing import get_args

from absl import flags

from t2t_keras.decoding.loading import Engine
from t2t_keras.decoding.translator import Translator

from . import model_flags, quiet_tensorflow

_RUN = model_flags.RUN

ENGINE = flags.DEFINE_enum(
    "engine",
    "tensorflow",
    get_args(Engine),
    "What computes searches; lite: TensorFlow Lite, faster on a CPU, once it has converted; lite_int8: in 8 bits.",
)
_EXCLUDE = flags.DEFINE_multi_string("exclude", [], "A word or phrase that no translation may contain.")
_SETTINGS = (
    flags.DEFINE_integer("beam_size", None, "Hypotheses kept a sentence; 1 is greedy search" + _RUN),
    flags.DEFINE_integer("min_length", None, "Output tokens before a translation may end" + _RUN),
    flags.DEFINE_integer("max_length_offset", None, "Output tokens allowed beyond the source's length" + _RUN),
    flags.DEFINE_float("max_length_factor", None, "What the source's length counts for in that limit" + _RUN),
    flags.DEFINE_float("patience", None, "Stop at patience * beam_size finished hypotheses; 0: search on" + _RUN),
    flags.DEFINE_float("coverage_penalty", None, "Beta of the coverage penalty; 0: none" + _RUN),
    flags.DEFINE_integer("no_repeat_ngram_size", None, "So many tokens in a row come at most once; 0: no rule" + _RUN),
    flags.DEFINE_integer("num_groups", None, "Groups of a diverse beam search, dividing the beam; 1: none" + _RUN),
    flags.DEFINE_float("diversity_strength", None, "What a token loses for each earlier group with it" + _RUN),
    flags.DEFINE_bool("sampling", None, "Whether to draw beam_size samples instead of searching" + _RUN),
    flags.DEFINE_float("temperature", None, "Of sampling: what logits are divided by" + _RUN),
    flags.DEFINE_integer("top_k", None, "Of sampling: only so many of the most probable tokens; 0: all" + _RUN),
    flags.DEFINE_float("top_p", None, "Of sampling: the most probable tokens up to this probability" + _RUN),
    flags.DEFINE_integer("seed", None, "Of sampling" + _RUN),
    flags.DEFINE_bool("bfloat16", None, "Whether to search with the weights in bfloat16: faster, less exact" + _RUN),
)
flags.adopt_module_key_flags(model_flags)


def load_translator() -> Translator:
    """The translator of the run, or of the ensemble with it, with the settings of the flags.

    Raises:
        InputError: as `model_flags.load_translator`.
    """
    if ENGINE.value != "tensorflow":
        quiet_tensorflow.start_lite()
    return model_flags.load_translator(model_flags.given(_SETTINGS), _EXCLUDE.value, ENGINE.value)

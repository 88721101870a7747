"""The flags that all programs which translate have in common; programs adopt them as their own."""

import dataclasses
from typing import get_args

import tensorflow as tf
from absl import flags

from t2t_keras.decoding.loading import Engine, Member
from t2t_keras.decoding.translator import Translator
from t2t_keras.run import Run
from t2t_keras.streams import share_out_cores

_RUN = "; default: the run's own setting."

MODEL_DIR = flags.DEFINE_string("model_dir", None, "The run's directory, or an export's (required).", required=True)
CHECKPOINT = flags.DEFINE_string(
    "checkpoint", None, "latest, best, a step, an average's name or a path; default: the newest average, else latest."
)
ENSEMBLE = flags.DEFINE_multi_string(
    "ensemble", [], "Another run of the same vocabulary that decodes along, MODEL_DIR or MODEL_DIR@CHECKPOINT."
)
ENSEMBLE_MEAN = flags.DEFINE_enum(
    "ensemble_mean", "probabilities", ["probabilities", "log_probabilities"], "What is averaged over an ensemble."
)
_ENGINE = flags.DEFINE_enum(
    "engine",
    "tensorflow",
    get_args(Engine),
    "What computes searches; lite: TensorFlow Lite, faster on a CPU, once it has converted; lite_int8: in 8 bits.",
)
_EXCLUDE = flags.DEFINE_multi_string("exclude", [], "A word or phrase that no translation may contain.")
_SETTINGS = (
    flags.DEFINE_integer("beam_size", None, "Hypotheses kept a sentence; 1 is greedy search" + _RUN),
    flags.DEFINE_float("length_penalty", None, "Alpha of the length penalty; 0 means none" + _RUN),
    flags.DEFINE_integer("min_length", None, "Output tokens before a translation may end" + _RUN),
    flags.DEFINE_integer("max_length_offset", None, "Output tokens allowed beyond the source's length" + _RUN),
    flags.DEFINE_float("max_length_factor", None, "What the source's length counts for in that limit" + _RUN),
    flags.DEFINE_float("patience", None, "Stop at patience * beam_size finished hypotheses; 0: search on" + _RUN),
    flags.DEFINE_enum(
        "length_normalization",
        None,
        ["gnmt", "average", "none"],
        "What scores are divided by: length penalty, length, nothing" + _RUN,
    ),
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
    flags.DEFINE_integer("tokens_per_batch", None, "Most sentences times source tokens of a batch" + _RUN),
)


def load_translator() -> Translator:
    """The translator of the run, or of the ensemble with it, with the settings of the flags.

    Raises:
        InputError: no such run or checkpoint, members that do not go together, or a setting out of range.
    """
    if not tf.config.list_physical_devices("GPU"):
        share_out_cores()
    given = {flag.name: flag.value for flag in _SETTINGS if flag.value is not None}
    config = dataclasses.replace(Run(MODEL_DIR.value).config.decode, **given)
    if not ENSEMBLE.value:
        return Translator.load(MODEL_DIR.value, CHECKPOINT.value, config, _EXCLUDE.value, _ENGINE.value)
    members = [Member(MODEL_DIR.value, CHECKPOINT.value), *map(Member.parse, ENSEMBLE.value)]
    return Translator.load_ensemble(members, ENSEMBLE_MEAN.value, config, _EXCLUDE.value, _ENGINE.value)

"""The flags of all programs that load a trained model: the model, and the computation of its scores."""

import dataclasses
from typing import TYPE_CHECKING, Any

from absl import flags

from t2t_keras.config import DecodeConfig
from t2t_keras.errors import InputError
from t2t_keras.inference.translator_settings import TranslatorSettings
from t2t_keras.runs.run import Run, RunCheckpoint, weights_path

from ..flag_types import ANY, FOLDER, DEFINE_multi_path, DEFINE_path
from . import extensions, setting_flags

if TYPE_CHECKING:
    from t2t_keras.inference.translator import Translator

MODEL_DIR = DEFINE_path("model_dir", None, "The directory of a run or of an export.", FOLDER)
CHECKPOINT = DEFINE_path(
    "checkpoint",
    None,
    "latest, best, a step, an average's name or a path; default: the newest average, else latest.",
    ANY,
)
ENSEMBLE = DEFINE_multi_path(
    "ensemble", "An additional run with the same vocabulary for an ensemble, MODEL_DIR or MODEL_DIR@CHECKPOINT.", ANY
)
ENSEMBLE_MEAN = flags.DEFINE_enum(
    "ensemble_mean",
    "probabilities",
    ["probabilities", "log_probabilities"],
    "The quantity that is averaged over an ensemble.",
)
# The settings that also exist in programs without a search.
SCORING = ("length_penalty", "length_normalization", "tokens_per_batch")
_SETTINGS = setting_flags.define(DecodeConfig, *SCORING)
flags.adopt_module_key_flags(extensions)


def decode_config(**changes: Any) -> DecodeConfig:
    """Returns the decoding settings of the run; the flags override them, and `changes` override both."""
    return dataclasses.replace(Run(MODEL_DIR.value).config.decode, **{**setting_flags.values(_SETTINGS), **changes})


def members() -> list[RunCheckpoint]:
    """Returns the run, or the members of the ensemble; raises InputError if a checkpoint does not exist."""
    result = [RunCheckpoint(MODEL_DIR.value, CHECKPOINT.value), *map(RunCheckpoint.parse, ENSEMBLE.value)]
    for member in result:
        weights_path(Run(member.model_dir), member.checkpoint)
    return result


def load_translator(settings: TranslatorSettings | None = None) -> "Translator":
    """Loads the translator of the run or the ensemble; `settings` replace the decoding settings of the flags."""
    if ENSEMBLE_MEAN.present and not ENSEMBLE.value:
        raise InputError("--ensemble_mean requires --ensemble")
    settings = settings or TranslatorSettings(decode_config())
    if ENSEMBLE.value and settings.engine != "tensorflow":
        raise InputError(f"--engine={settings.engine} does not support --ensemble; use --engine=tensorflow")
    ensemble_members = members()  # raises before TensorFlow is imported, which takes seconds
    import tensorflow as tf

    from t2t_keras.inference.translator import Translator
    from t2t_keras.machine.streams import share_out_cores

    if not tf.config.list_physical_devices("GPU"):
        share_out_cores()
    if not ENSEMBLE.value:
        return Translator.load(MODEL_DIR.value, CHECKPOINT.value, settings)
    return Translator.load_ensemble(ensemble_members, ENSEMBLE_MEAN.value, settings)

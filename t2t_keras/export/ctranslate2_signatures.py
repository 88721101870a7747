"""Runs some signatures of an export on CTranslate2 instead of in the graph, for servers that run Python."""

import dataclasses
import pathlib
from collections.abc import Callable

import tensorflow as tf

from t2t_keras.config.decode_config import ComputeType
from t2t_keras.errors import InputError
from t2t_keras.export_contract import CONFIG_FILE, LOWEST, NBEST, SERVING_DEFAULT
from t2t_keras.inference.ctranslate2_engine import package_and_device
from t2t_keras.inference.translation import Translation
from t2t_keras.inference.translator import Translator
from t2t_keras.inference.translator_settings import TranslatorSettings
from t2t_keras.runs.run import Run
from t2t_keras.text.protection.spans import NOTHING

Function = Callable[..., dict[str, tf.Tensor]]


class CTranslate2Signatures:
    """Makes functions that replace the signatures `serving_default` and `nbest` of a version of an export.

    Each call converts the export's weights in a temporary folder, as `CTranslate2Engine` does.

    Args:
        compute_type: number format of CTranslate2's matrix products; see `CTranslate2Engine`.

    Raises:
        InputError: the package is missing, or it does not support the compute type on this machine.
    """

    def __init__(self, compute_type: ComputeType) -> None:
        package_and_device(compute_type)
        self._compute_type = compute_type

    def __call__(self, version: pathlib.Path) -> dict[str, Function]:
        """Returns the functions by the names of their signatures.

        They take `text`, string [batch], run eagerly, and return the outputs that `signatures` describes. Lines that
        are not valid sources of the task raise `tf.errors.InvalidArgumentError`.

        Args:
            version: the directory of the version.

        Raises:
            InputError: the directory is not an export of this project, or CTranslate2 does not support the export's
                settings.
        """
        if not (version / CONFIG_FILE).is_file():
            raise InputError(
                f"{version} has no {CONFIG_FILE}, so the engine ctranslate2 cannot read it; use --engine=tensorflow"
            )
        # The server protects spans around all signatures, as it does around those of the graph.
        decode = dataclasses.replace(Run(version).config.decode, protect=(NOTHING,), case="exact")
        settings = TranslatorSettings(decode, engine="ctranslate2", compute_type=self._compute_type)
        translator = Translator.load(version, settings=settings)
        if translator.config.sampling:
            raise InputError(
                "the engine ctranslate2 does not support decode.sampling=True, because its samples depend on the other "
                "texts of the batch; use --engine=tensorflow"
            )

        def serving_default(text: tf.Tensor) -> dict[str, tf.Tensor]:
            best = [hypotheses[0] for hypotheses in _translate(translator, text, 1)]
            return {"translation": _texts(best), "score": _scores(best)}

        def nbest(text: tf.Tensor) -> dict[str, tf.Tensor]:
            k, empty = translator.config.beam_size, Translation("", LOWEST)
            rows = [[*hypotheses, *[empty] * (k - len(hypotheses))] for hypotheses in _translate(translator, text, k)]
            flat = [hypothesis for row in rows for hypothesis in row]
            return {"translations": tf.reshape(_texts(flat), [-1, k]), "scores": tf.reshape(_scores(flat), [-1, k])}

        return {SERVING_DEFAULT: serving_default, NBEST: nbest}


def _translate(translator: Translator, text: tf.Tensor, num_best: int) -> list[list[Translation]]:
    """Translates lines, string [batch], and returns up to `num_best` translations of each, best first."""
    lines = [line.decode("utf-8", "replace") for line in text.numpy().tolist()]
    try:
        return translator.translate_nbest(lines, num_best)
    except InputError as error:
        raise tf.errors.InvalidArgumentError(None, None, str(error)) from error


def _texts(translations: list[Translation]) -> tf.Tensor:
    return tf.constant([translation.text for translation in translations], tf.string)


def _scores(translations: list[Translation]) -> tf.Tensor:
    """Returns the scores, float32 [translations], with `LOWEST` in place of -inf, which JSON cannot express."""
    return tf.constant([max(translation.score, LOWEST) for translation in translations], tf.float32)

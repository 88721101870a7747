"""Recognises the language of a text, with the package py3langid."""

import threading
from collections.abc import Sequence
from typing import Any

from t2t_keras.errors import InputError, optional_module
from t2t_keras.serving.libretranslate.language_pairs import base_code
from t2t_keras.serving.request_errors import Code, ServingError

MISSING = "language detection needs the package py3langid: pip install '.[detect]'"

# The beginning of a text is enough.
_MAX_CHARACTERS = 4096

# Less likely languages are left out, except the most likely one.
_MIN_CONFIDENCE = 1.0


class LanguageDetector:
    """Thread-safe detector, which is loaded when it is first used."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._identifier: Any = None

    def rank(self, text: str, languages: Sequence[str]) -> list[tuple[str, float]]:
        """Ranks languages by how likely a text is written in them.

        Args:
            text: the text.
            languages: codes of the possible languages.

        Returns:
            Pairs of one of the `languages` and the confidence in percent, the most likely language first; at least one
            pair, if there are languages. The confidences of all languages that the package knows sum to 100. For text
            without letters, the confidence is 0.

        Raises:
            ServingError: the package is not installed.
        """
        by_code: dict[str, str] = {}
        for language in languages:
            by_code.setdefault(base_code(language), language)
        beginning = text[:_MAX_CHARACTERS]
        ranking = self._load().rank(beginning)
        pairs = [(by_code[code], 100 * confidence) for code, confidence in ranking if code in by_code]
        if not pairs or not any(map(str.isalpha, beginning)):
            return [(language, 0.0) for language in languages[:1]]
        best, *others = pairs
        return [best, *(pair for pair in others if pair[1] >= _MIN_CONFIDENCE)]

    def _load(self) -> Any:
        with self._lock:
            if self._identifier is None:
                try:
                    langid = optional_module("py3langid.langid", MISSING)
                except InputError as error:
                    raise ServingError(Code.UNIMPLEMENTED, str(error)) from error
                self._identifier = langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE, norm_probs=True)
            return self._identifier

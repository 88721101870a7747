"""The languages of the served models, and which models translate from one into another."""

import contextlib
import dataclasses
from collections.abc import Sequence

from t2t_keras.serving.core import Core
from t2t_keras.serving.request_errors import ServingError


@dataclasses.dataclass(frozen=True)
class LanguagePair:
    """A served model and its languages.

    Attributes:
        model: name of the model.
        source: code of the source language.
        target: code of the target language.
        tag: symbol in front of each source, if the model translates in several directions; otherwise "".
    """

    model: str
    source: str
    target: str
    tag: str = ""

    def source_text(self, text: str) -> str:
        """Returns a text as the model takes it: with the tag in front."""
        return f"{self.tag} {text}" if self.tag and text.strip() else text


class LanguagePairs:
    """Finds the models that translate from one language into another.

    Args:
        pairs: the models; the first one of several for the same languages is used.
    """

    def __init__(self, pairs: Sequence[LanguagePair]) -> None:
        self._pairs: dict[tuple[str, str], LanguagePair] = {}
        for pair in pairs:
            self._pairs.setdefault((pair.source, pair.target), pair)
        # In the order of the models.
        self.languages = tuple(dict.fromkeys(code for languages in self._pairs for code in languages))

    def find(self, code: str) -> str | None:
        """Returns the language of the models that matches a client's code, or None.

        The comparison ignores case, and treats "_" like "-". If no language matches exactly, "pt-BR" (with a region or
        script) matches "pt", and "pt" matches the first language such as "pt-BR".
        """
        matches = [language for language in self.languages if _normal(language) == _normal(code)]
        matches += [language for language in self.languages if _normal(language) == base_code(code)]
        if "-" not in _normal(code):
            matches += [language for language in self.languages if base_code(language) == _normal(code)]
        return matches[0] if matches else None

    def targets(self, source: str) -> list[str]:
        """Returns the languages into which a language can be translated, including itself, in alphabetical order."""
        return sorted(target for target in self.languages if self.route(source, target) is not None)

    def route(self, source: str, target: str) -> tuple[LanguagePair, ...] | None:
        """Returns the pairs whose models translate one language into another, one after the other.

        Returns:
            One pair, or two that translate through a third language; empty if the languages are the same; None if no
            models translate this language into the other.
        """
        if source == target:
            return ()
        if pair := self._pairs.get((source, target)):
            return (pair,)
        for (first, pivot), pair in self._pairs.items():
            if first == source and (second := self._pairs.get((pivot, target))):
                return pair, second
        return None


def served_pairs(core: Core) -> LanguagePairs:
    """Returns the language pairs of the latest versions of all models for translation."""
    pairs = []
    for name in core.models.names:
        with contextlib.suppress(ServingError), core.lend(name, None) as loan:
            about, signature = loan.model.about, loan.model.signature("")
            if list(signature.inputs) == ["text"] and "translation" in signature.outputs:
                directions = about.get("directions")
                languages = directions or [(about.get("source_language"), about.get("target_language"))]
                if about.get("task", "translation") == "translation":
                    pairs += [
                        LanguagePair(name, source, target, f"<2{target}>" if directions else "")
                        for source, target in languages
                        if source and target
                    ]
    return LanguagePairs(pairs)


def base_code(code: str) -> str:
    """Returns a language code in lower case without its region or script: "pt" for "pt_BR"."""
    return _normal(code).partition("-")[0]


def _normal(code: str) -> str:
    return code.replace("_", "-").lower()

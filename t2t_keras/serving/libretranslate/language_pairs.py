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
    """

    model: str
    source: str
    target: str


class LanguagePairs:
    """Finds the models that translate from one language into another.

    Args:
        pairs: the models; the first one of several for the same languages is used.
    """

    def __init__(self, pairs: Sequence[LanguagePair]) -> None:
        self._models: dict[tuple[str, str], str] = {}
        for pair in pairs:
            self._models.setdefault((pair.source, pair.target), pair.model)
        # In the order of the models.
        self.languages = tuple(dict.fromkeys(code for languages in self._models for code in languages))

    def find(self, code: str) -> str | None:
        """Returns the language of the models that a client's code means, or None.

        The case of letters does not matter, and "_" is the same as "-". A language with a region or script, such as
        "pt-BR", also means the same language without it, and a language without it the first one with it.
        """
        matches = [language for language in self.languages if _normal(language) == _normal(code)]
        matches += [language for language in self.languages if _normal(language) == base_code(code)]
        if "-" not in _normal(code):
            matches += [language for language in self.languages if base_code(language) == _normal(code)]
        return matches[0] if matches else None

    def targets(self, source: str) -> list[str]:
        """Returns the languages into which a language can be translated, itself included, in alphabetical order."""
        return sorted(target for target in self.languages if self.route(source, target) is not None)

    def route(self, source: str, target: str) -> tuple[str, ...] | None:
        """Returns the models that translate a language, in the order of their use.

        Returns:
            One model, or two models that translate through a third language; empty if the languages are the same; None
            if the models cannot translate this language into the other.
        """
        if source == target:
            return ()
        if model := self._models.get((source, target)):
            return (model,)
        for (first, pivot), model in self._models.items():
            if first == source and (second := self._models.get((pivot, target))):
                return model, second
        return None


def served_pairs(core: Core) -> LanguagePairs:
    """Returns the language pairs of the latest versions of all models for translation."""
    pairs = []
    for name in core.models.names:
        with contextlib.suppress(ServingError), core.lend(name, None) as loan:
            about, signature = loan.model.about, loan.model.signature("")
            if list(signature.inputs) == ["text"] and "translation" in signature.outputs:
                languages = about.get("source_language"), about.get("target_language")
                if about.get("task", "translation") == "translation" and languages[0] and languages[1]:
                    pairs.append(LanguagePair(name, languages[0], languages[1]))
    return LanguagePairs(pairs)


def base_code(code: str) -> str:
    """Returns a language code in lower case without its region or script: "pt" for "pt_BR"."""
    return _normal(code).partition("-")[0]


def _normal(code: str) -> str:
    return code.replace("_", "-").lower()

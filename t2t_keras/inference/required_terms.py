"""Enforces a glossary: if a translation lacks a term, a second search constrains the output to contain it."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from t2t_keras.config import DecodeConfig
from t2t_keras.errors import InputError, named
from t2t_keras.inference.request import EncodedRequest, Ids, RequestEncoder
from t2t_keras.inference.translation import TermUse, Translation
from t2t_keras.text.terms import Glossary, Term, spellings
from t2t_keras.text.text_tokenizer import TextTokenizer
from t2t_keras.text.words import word_places

# Returns the translations of each request, best first; every request has exactly one part.
Search = Callable[[Sequence[EncodedRequest]], list[list[Translation]]]


def check_combination(
    config: DecodeConfig, tokenizer: TextTokenizer, options: frozenset[str], writes_labels: bool
) -> None:
    """Raises an `InputError` if these settings, or an engine with these `options`, do not allow a glossary."""
    if "constraints" not in options:
        raise InputError("this engine does not support glossaries; use --engine=tensorflow")
    for name, off in (("sampling", False), ("num_groups", 1)):
        if (value := getattr(config, name)) != off:
            raise InputError(f"a glossary cannot be combined with decode.{name}={str(value).lower()}")
    if not tokenizer.marks_words:
        raise InputError(
            "a glossary: the vocabulary's entries do not mark the beginnings of words, so words cannot be required"
        )
    if writes_labels:
        raise InputError("a glossary: the outputs of this model are labels")


class RequiredTerms:
    """Makes translations contain the terms of a glossary.

    Each part of a line is first translated without constraints. If the best translation lacks a term, the part is
    translated again with all of its terms as constraints, except terms for which the length limit leaves no room.

    Args:
        glossary: the terms.
        encoder: the encoder of the translator's requests.
        source_text: decodes the token ids of a source.

    Raises:
        InputError: the vocabulary cannot spell a form, or all forms of a term are excluded; names the term's line.
    """

    def __init__(self, glossary: Glossary, encoder: RequestEncoder, source_text: Callable[[Ids], str]) -> None:
        self._encoder, self._source_text = encoder, source_text
        self._glossary = glossary.with_sources([encoder.repaired(term.source) for term in glossary.terms])
        self._phrases = {term.place: self._phrases_of(term) for term in self._glossary.terms}

    def _phrases_of(self, term: Term) -> dict[str, Ids]:
        texts = [spelling for form in term.forms for spelling in spellings(form)]
        with named(term.place):
            phrases = {text: self._encoder.phrase("form", text) for text in map(self._encoder.repaired_output, texts)}
        excluded = {text: self._encoder.exclusion(ids) for text, ids in phrases.items()}
        if all(excluded.values()):
            form, phrase = next(iter(excluded.items()))
            raise InputError(f"{term.place}: {form!r} contains {phrase!r}, which is excluded")
        return {text: ids for text, ids in phrases.items() if not excluded[text]}

    def translations(
        self, parts: Sequence[EncodedRequest], search: Search, constrained_search: Search
    ) -> list[list[Translation]]:
        """Translates parts with the terms of the glossary.

        Args:
            parts: requests of one part each.
            search: the search without constraints.
            constrained_search: the search with constraints.

        Returns:
            The translations of each part with their `terms`. No translation lacks more terms than the first one of its
            part.
        """
        plain = search(parts)
        requests = self.constrained_requests(parts, plain)
        forced = constrained_search(list(requests.values())) if requests else []
        return self.choose(parts, plain, dict(zip(requests, forced, strict=True)))

    def constrained_requests(
        self, parts: Sequence[EncodedRequest], plain: Sequence[Sequence[Translation]]
    ) -> dict[int, EncodedRequest]:
        """Returns the constrained requests of the parts that must be translated again, by index of the part.

        These are the parts whose best unconstrained translation, in `plain`, lacks a term for which there is room.
        """
        requests = {}
        for row, (part, translations) in enumerate(zip(parts, plain, strict=True)):
            terms = self._terms_of(part)
            if self._missing(translations[0], terms) and (extension := self._constrain(part, terms)) != part:
                requests[row] = extension
        return requests

    def choose(
        self,
        parts: Sequence[EncodedRequest],
        plain: Sequence[Sequence[Translation]],
        forced: Mapping[int, Sequence[Translation]],
    ) -> list[list[Translation]]:
        """Chooses the constrained translations of a part if they lack fewer terms than the unconstrained ones.

        Args:
            parts: requests of one part each.
            plain: the unconstrained translations of each part.
            forced: the constrained translations, by index of the part.

        Returns:
            The translations of each part with their `terms`.
        """
        return [self._choose(plain[row], forced.get(row, ()), self._terms_of(part)) for row, part in enumerate(parts)]

    def _terms_of(self, part: EncodedRequest) -> list[Term]:
        return self._glossary.terms_in(self._source_text(part.parts[0]))

    def _constrain(self, part: EncodedRequest, terms: Sequence[Term]) -> EncodedRequest:
        """Adds the terms to a request as constraints, as far as the length limit leaves room."""
        for term in terms:
            phrases = tuple(dict.fromkeys(self._phrases[term.place].values()))
            extension = dataclasses.replace(part, constraints=(*part.constraints, phrases))
            if self._encoder.num_needed(extension) <= self._encoder.limit(extension):
                part = extension
        return part

    def _choose(
        self, plain: Sequence[Translation], forced: Sequence[Translation], terms: Sequence[Term]
    ) -> list[Translation]:
        missing = self._missing(plain[0], terms)
        is_better = bool(forced) and len(self._missing(forced[0], terms)) < len(missing)
        choice = forced if is_better else plain
        most = len(self._missing(choice[0], terms))
        return [
            dataclasses.replace(
                one,
                terms=tuple(self._use(one, term, is_better and term in missing) for term in terms),
            )
            for one in choice
            if len(self._missing(one, terms)) <= most
        ]

    def _use(self, translation: Translation, term: Term, is_new: bool) -> TermUse:
        form = self._form(translation, term)
        return TermUse(term.source, form, is_new and bool(form), term.forms)

    def _missing(self, translation: Translation, terms: Sequence[Term]) -> list[Term]:
        return [term for term in terms if not self._form(translation, term)]

    def _form(self, translation: Translation, term: Term) -> str:
        """Returns the first form of a term that a translation contains, or ""."""
        forms = self._phrases[term.place]
        return next((form for form in forms if any(True for _ in word_places(translation.text, form))), "")

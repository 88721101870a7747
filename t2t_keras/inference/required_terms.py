"""A glossary's terms in translations: what the model does not write of its own accord, a second search must."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from t2t_keras.config import DecodeConfig
from t2t_keras.errors import InputError, named
from t2t_keras.inference.request import EncodedRequest, Ids, RequestEncoder
from t2t_keras.inference.translation import TermUse, Translation
from t2t_keras.text.terms import Glossary, Term, spellings
from t2t_keras.text.tokenizer import Tokenizer
from t2t_keras.text.words import word_places

# Up to so many translations of each of these requests, which all have one part.
Search = Callable[[Sequence[EncodedRequest]], list[list[Translation]]]


def check_combination(config: DecodeConfig, tokenizer: Tokenizer, options: frozenset[str], writes_labels: bool) -> None:
    """Raises an `InputError` if a glossary does not go with these settings, or with an engine of these options."""
    if "constraints" not in options:
        raise InputError("a glossary: not with this engine; --engine=tensorflow takes it")
    for name, off in (("sampling", False), ("num_groups", 1)):
        if (value := getattr(config, name)) != off:
            raise InputError(f"a glossary does not go together with decode.{name}={str(value).lower()}")
    if not tokenizer.marks_words:
        raise InputError("a glossary: tensor2tensor's subwords do not say where words begin, so none can be required")
    if writes_labels:
        raise InputError("a glossary: the outputs of this model are labels")


class RequiredTerms:
    """Keeps the terms of a glossary in translations.

    A part of a line is searched for without them first. Where the best translation lacks a term, it is searched for
    again with all its terms as constraints, but for those for which the length's limit leaves no room.

    Args:
        glossary: the terms.
        encoder: what encodes requests.
        source_text: the text of a source's token ids.

    Raises:
        InputError: a form that the vocabulary cannot spell, or a term all of whose forms are excluded; names its line.
    """

    def __init__(self, glossary: Glossary, encoder: RequestEncoder, source_text: Callable[[Ids], str]) -> None:
        self._encoder, self._source_text = encoder, source_text
        self._glossary = glossary.with_sources([encoder.repaired(term.source) for term in glossary.terms])
        self._phrases = {term.place: self._phrases_of(term) for term in self._glossary.terms}

    def _phrases_of(self, term: Term) -> dict[str, Ids]:
        texts = [spelling for form in term.forms for spelling in spellings(form)]
        with named(term.place):
            phrases = {text: self._encoder.phrase("form", text) for text in map(self._encoder.repaired, texts)}
        excluded = {text: self._encoder.exclusion(ids) for text, ids in phrases.items()}
        if all(excluded.values()):
            form, what = next(iter(excluded.items()))
            raise InputError(f"{term.place}: {form!r} has {what!r}, which is excluded")
        return {text: ids for text, ids in phrases.items() if not excluded[text]}

    def translations(self, parts: Sequence[EncodedRequest], first: Search, again: Search) -> list[list[Translation]]:
        """What the `first` search finds for each part, or the search `again`, with what became of each term.

        All translations of a part have as many terms as its best one.
        """
        plain = first(parts)
        asked = self.asked_again(parts, plain)
        forced = again(list(asked.values())) if asked else []
        return self.chosen(parts, plain, dict(zip(asked, forced, strict=True)))

    def asked_again(
        self, parts: Sequence[EncodedRequest], plain: Sequence[Sequence[Translation]]
    ) -> dict[int, EncodedRequest]:
        """What is searched for again, by the numbers of parts whose first translations `plain` lack terms."""
        asked = {}
        for row, (part, translations) in enumerate(zip(parts, plain, strict=True)):
            terms = self._terms_of(part)
            if self._missing(translations[0], terms) and (longer := self._constrained(part, terms)) != part:
                asked[row] = longer
        return asked

    def chosen(
        self,
        parts: Sequence[EncodedRequest],
        plain: Sequence[Sequence[Translation]],
        forced: Mapping[int, Sequence[Translation]],
    ) -> list[list[Translation]]:
        """The translations of each part, given the first ones, and those of what was searched for again, by number."""
        return [self._chosen(plain[row], forced.get(row, ()), self._terms_of(part)) for row, part in enumerate(parts)]

    def _terms_of(self, part: EncodedRequest) -> list[Term]:
        return self._glossary.found_in(self._source_text(part.parts[0]))

    def _constrained(self, part: EncodedRequest, terms: Sequence[Term]) -> EncodedRequest:
        """The request with the terms that there is room for."""
        for term in terms:
            phrases = tuple(dict.fromkeys(self._phrases[term.place].values()))
            longer = dataclasses.replace(part, constraints=(*part.constraints, phrases))
            if self._encoder.num_needed(longer) <= self._encoder.limit(longer):
                part = longer
        return part

    def _chosen(
        self, plain: Sequence[Translation], forced: Sequence[Translation], terms: Sequence[Term]
    ) -> list[Translation]:
        missing = self._missing(plain[0], terms)
        is_better = bool(forced) and len(self._missing(forced[0], terms)) < len(missing)
        chosen = forced if is_better else plain
        most = len(self._missing(chosen[0], terms))
        return [
            dataclasses.replace(
                one,
                terms=tuple(self._use(one, term, is_better and term in missing) for term in terms),
            )
            for one in chosen
            if len(self._missing(one, terms)) <= most
        ]

    def _use(self, translation: Translation, term: Term, is_new: bool) -> TermUse:
        form = self._form(translation, term)
        return TermUse(term.source, form, is_new and bool(form), term.forms)

    def _missing(self, translation: Translation, terms: Sequence[Term]) -> list[Term]:
        return [term for term in terms if not self._form(translation, term)]

    def _form(self, translation: Translation, term: Term) -> str:
        """The form of a term that a translation has, or ""."""
        forms = self._phrases[term.place]
        return next((form for form in forms if any(True for _ in word_places(translation.text, form))), "")

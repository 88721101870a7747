"""Glossaries: terms of the source, and the forms of which a translation must have one."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from t2t_keras.errors import InputError
from t2t_keras.text.repair import repair
from t2t_keras.text.words import is_apart, is_of_word

_BETWEEN_FORMS = "|"


class Term(NamedTuple):
    """A term of a glossary.

    Attributes:
        source: the term, as it is written in sources; one in lower case is found capitalised too.
        forms: what it may be in a translation, those in lower case also capitalised.
        place: the glossary's name and the line, for messages.
    """

    source: str
    forms: tuple[str, ...]
    place: str


class _Match(NamedTuple):
    start: int
    end: int
    is_capitalised: bool
    term: Term

    @property
    def rank(self) -> tuple[int, bool, int]:
        """Longer ones come first, then what is written exactly so, then the first in the text."""
        return self.start - self.end, self.is_capitalised, self.start


class Glossary:
    """Finds terms in texts.

    Args:
        terms: the terms; no two have the same source.
    """

    def __init__(self, terms: Sequence[Term]) -> None:
        self.terms = tuple(terms)
        # Found by their first word, since a glossary may have many thousands.
        self._by_beginning: dict[str, list[tuple[str, bool, Term]]] = {}
        for term in self.terms:
            for number, spelling in enumerate(spellings(term.source)):
                rows = self._by_beginning.setdefault(_unit(spelling, 0), [])
                rows.append((spelling, number > 0, term))

    @classmethod
    def parsed(cls, lines: Iterable[str], name: str) -> "Glossary":
        """The glossary of lines "term TAB form|form|...", of which blank ones are skipped.

        Raises:
            InputError: a line is not like that, or its term has been in an earlier one; begins with `name` and the
                line.
        """
        rows = []
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            columns = line.split("\t")
            if len(columns) != 2:
                where = f"{name}, line {number}"
                raise InputError(f"{where}: expected a term, a tab and its forms, got {line.strip()[:60]!r}")
            rows.append((f"line {number}", columns[0], columns[1]))
        return cls.of(rows, name)

    @classmethod
    def of(cls, rows: Iterable[tuple[str, str, str]], name: str) -> "Glossary":
        """The glossary of rows: what a row is called, a term, and "form|form|...".

        Raises:
            InputError: a term or a form is blank, or a term has been in an earlier row; begins with `name` and the row.
        """
        terms: dict[str, Term] = {}
        for row, term, written in rows:
            place = f"{name}, {row}"
            source, forms = repair(term), [repair(form) for form in written.split(_BETWEEN_FORMS)]
            if not source or not all(forms):
                blank, line = "one of the forms" if source else "the term", f"{term}\t{written}".strip()
                raise InputError(f"{place}: {blank} is blank in {line[:60]!r}")
            if source in terms:
                earlier = terms[source].place.removeprefix(name)[2:]
                raise InputError(f"{place}: the term {source[:60]!r} is in {earlier} too")
            terms[source] = Term(source, tuple(dict.fromkeys(forms)), place)
        return cls(list(terms.values()))

    def with_sources(self, sources: Sequence[str]) -> "Glossary":
        """The same terms with other sources, such as lowercased ones; of several equal ones the first counts."""
        terms: dict[str, Term] = {}
        for source, term in zip(sources, self.terms, strict=True):
            terms.setdefault(source, term._replace(source=source))
        return Glossary(list(terms.values()))

    def found_in(self, text: str) -> list[Term]:
        """The terms whose words a text has, each once, in its order; where two overlap, the longer one."""
        matches = [match for start in range(len(text)) if _begins(text, start) for match in self._matches(text, start)]
        taken: list[_Match] = []
        for match in sorted(matches, key=lambda match: match.rank):
            if all(match.end <= other.start or other.end <= match.start for other in taken):
                taken.append(match)
        return list(dict.fromkeys(match.term for match in sorted(taken)))

    def _matches(self, text: str, start: int) -> Iterable[_Match]:
        for spelling, is_capitalised, term in self._by_beginning.get(_unit(text, start), ()):
            end = start + len(spelling)
            if text.startswith(spelling, start) and is_apart(text, end):
                yield _Match(start, end, is_capitalised, term)


def spellings(phrase: str) -> list[str]:
    """How a phrase may be written: as it is and, if it is in lower case, with a capital first."""
    capitalised = phrase[:1].upper() + phrase[1:]
    return [phrase, capitalised] if phrase == phrase.lower() and capitalised != phrase else [phrase]


def _begins(text: str, place: int) -> bool:
    """Whether a word, or a character of none, begins here."""
    return not text[place].isspace() and is_apart(text, place)


def _unit(text: str, start: int) -> str:
    """The word that begins at a position, or the one character of none."""
    end = start + 1
    while end < len(text) and is_of_word(text[start]) and is_of_word(text[end]):
        end += 1
    return text[start:end]

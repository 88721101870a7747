"""Glossaries: source terms, and the forms of which the translation must contain one."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from t2t_keras.errors import InputError
from t2t_keras.text.repair import repair
from t2t_keras.text.spreadsheets import tab_separated_rows
from t2t_keras.text.words import disjoint, is_apart, is_of_word

_BETWEEN_FORMS = "|"


class Term(NamedTuple):
    """A term of a glossary.

    Attributes:
        source: the term as sources spell it. A term in lower case also matches with a capital first letter.
        forms: allowed translations of the term. A form in lower case may also have a capital first letter.
        place: name of the glossary and line or row, for messages.
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
        """The sort key of overlapping matches: longest first, then exact spelling, then first in the text."""
        return self.start - self.end, self.is_capitalised, self.start


class Glossary:
    """Finds terms in texts.

    Args:
        terms: the terms, with distinct sources.
    """

    def __init__(self, terms: Sequence[Term]) -> None:
        self.terms = tuple(terms)
        # Indexed by their first word, because a glossary may have many thousands of terms.
        self._by_beginning: dict[str, list[tuple[str, bool, Term]]] = {}
        for term in self.terms:
            for number, spelling in enumerate(spellings(term.source)):
                rows = self._by_beginning.setdefault(_unit(spelling, 0), [])
                rows.append((spelling, number > 0, term))

    @classmethod
    def parsed(cls, lines: Iterable[str], name: str) -> "Glossary":
        """Parses a glossary from lines "term TAB form|form|..."; blank lines are skipped.

        Args:
            lines: the lines.
            name: name of the glossary, for messages.

        Raises:
            InputError: a line does not have this format, a term or a form is blank, or a term occurs twice; the message
                begins with `name` and the line.
        """
        rows = []
        for number, columns in tab_separated_rows(line.rstrip("\r\n") for line in lines):
            if not "".join(columns).strip():
                continue
            if len(columns) != 2:
                place, line = f"{name}, line {number}", "\t".join(columns).strip()
                raise InputError(f"{place}: expected a term, a tab and its forms, got {line[:60]!r}")
            rows.append((f"line {number}", columns[0], columns[1]))
        return cls.of(rows, name)

    @classmethod
    def of(cls, rows: Iterable[tuple[str, str, str]], name: str) -> "Glossary":
        """Creates a glossary from rows.

        Args:
            rows: for each row, its name, a term, and the forms as "form|form|...".
            name: name of the glossary, for messages.

        Raises:
            InputError: a term or a form is blank, or a term occurs twice; the message begins with `name` and the row.
        """
        terms: dict[str, Term] = {}
        for row, term, forms_field in rows:
            place = f"{name}, {row}"
            source, forms = repair(term), [repair(form) for form in forms_field.split(_BETWEEN_FORMS)]
            if not source or not all(forms):
                blank, line = "one of the forms" if source else "the term", f"{term}\t{forms_field}".strip()
                raise InputError(f"{place}: {blank} is blank in {line[:60]!r}")
            if source in terms:
                earlier = terms[source].place.removeprefix(name)[2:]
                raise InputError(f"{place}: the term {source[:60]!r} is also in {earlier}")
            terms[source] = Term(source, tuple(dict.fromkeys(forms)), place)
        return cls(list(terms.values()))

    def with_sources(self, sources: Sequence[str]) -> "Glossary":
        """Returns a glossary with the same terms but different sources, such as lowercased ones.

        If several terms get the same source, only the first of them is kept.
        """
        terms: dict[str, Term] = {}
        for source, term in zip(sources, self.terms, strict=True):
            terms.setdefault(source, term._replace(source=source))
        return Glossary(list(terms.values()))

    def terms_in(self, text: str) -> list[Term]:
        """Returns the terms that occur in a text as whole words, each once, in the order of the text.

        If terms overlap, only the longest is returned.
        """
        matches = [match for start in range(len(text)) if _begins(text, start) for match in self._matches(text, start)]
        selection = disjoint(sorted(matches, key=lambda match: match.rank))
        return list(dict.fromkeys(match.term for match in selection))

    def _matches(self, text: str, start: int) -> Iterable[_Match]:
        for spelling, is_capitalised, term in self._by_beginning.get(_unit(text, start), ()):
            end = start + len(spelling)
            if text.startswith(spelling, start) and is_apart(text, end):
                yield _Match(start, end, is_capitalised, term)


def spellings(phrase: str) -> list[str]:
    """Returns the spellings of a phrase: unchanged and, if it is in lower case, with a capital first letter."""
    capitalised = phrase[:1].upper() + phrase[1:]
    return [phrase, capitalised] if phrase == phrase.lower() and capitalised != phrase else [phrase]


def _begins(text: str, place: int) -> bool:
    """Returns whether a word, or a character that is neither blank nor part of a word, begins at a position."""
    return not text[place].isspace() and is_apart(text, place)


def _unit(text: str, start: int) -> str:
    """Returns the word that begins at a position, or the character there if it is not part of a word."""
    end = start + 1
    while end < len(text) and is_of_word(text[start]) and is_of_word(text[end]):
        end += 1
    return text[start:end]

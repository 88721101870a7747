"""Reports the terms of a glossary on standard error."""

from t2t_keras.inference.translation import Translation

from . import program


class TermReport:
    """Counts the terms of all lines, and reports missing terms immediately.

    Args:
        name: name of the input.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._num_terms = self._num_forced = self._num_missing = 0

    def add(self, number: int, translation: Translation) -> None:
        """Counts the terms of a line, and warns of each term that the translation lacks."""
        for term in translation.terms:
            self._num_terms += 1
            self._num_forced += term.is_forced
            if not term.form:
                self._num_missing += 1
                place = f"{self._name}, line {number}"
                problem = f"no form of the term {term.source!r} fits within the limit: {'|'.join(term.forms)}"
                program.warn(f"warning: {place}: {problem}")

    def print(self) -> None:
        """Prints the numbers of terms."""
        num_unforced = self._num_terms - self._num_forced - self._num_missing
        counts = f"{num_unforced:,} met by the model, {self._num_forced:,} forced, {self._num_missing:,} missing"
        program.warn(f"glossary: {self._num_terms:,} terms in the source, {counts}")

"""Prepares lines of text for translation: removes protected spans and unusual case, and restores both afterwards."""

import itertools
import re
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from t2t_keras.text import sentences as splitting
from t2t_keras.text.language_codes import Languages
from t2t_keras.text.letter_case import Case, case_of, in_case, is_unfamiliar, ordinary
from t2t_keras.text.markup.placing import AlignedText
from t2t_keras.text.protection.removal import (
    Removed,
    Restored,
    Sentence,
    remove,
    repeats,
    restored,
    source_units,
    weak_source_units,
    without_spans,
)
from t2t_keras.text.protection.spans import SpanFinder
from t2t_keras.text.repair import UNPRINTABLE, without_surrogates
from t2t_keras.text.words import units


class SentenceCase(NamedTuple):
    """The unusual case of a sentence.

    Attributes:
        case: the case; None if it is not unusual or if the model knows it.
        source: the sentence in that case.
        language: language code of the translation.
    """

    case: Case | None
    source: str
    language: str


class Prepared(NamedTuple):
    """A line that differs from the text that the model reads.

    Attributes:
        source: the line, without invisible characters.
        text: the text to translate; "" if nothing remains to translate.
        removed: the spans that were removed.
        remaining: the spans that remain in the text.
        unknown: the spans with characters that the model does not know.
        cases: the case of each sentence of the text; empty if no case is unusual.
        readable: returns a part of the line with the marks that the model reads, such as "..." in place of "…".
    """

    source: str
    text: str
    removed: tuple[Removed, ...]
    remaining: tuple[str, ...]
    unknown: tuple[str, ...]
    cases: tuple[SentenceCase, ...]
    readable: Callable[[str], str] = str

    def is_met(self, translation: str) -> bool:
        """Returns whether a translation of the text repeats each span that remains in it exactly once."""
        return repeats(translation, self.remaining)

    def finished(self, sentences: Sequence[Sentence], intact: Sequence[str] = (), prefix: str = "") -> Restored:
        """Returns the translation of the line.

        Args:
            sentences: the sentences of the text with their translations; none if the text is blank.
            intact: phrases of the translation into which no span is inserted. A span that one of them contains is not
                put back again.
            prefix: beginning of the translation, which is treated like these phrases.
        """
        intact = (*intact, prefix)
        removed = [each for each in self.removed if not any(each.text in phrase for phrase in intact)]
        return restored(removed, self._translated(sentences, intact), (*intact, *self.remaining), len(prefix))

    def aligned(self, sentences: Sequence[Sentence]) -> AlignedText:
        """Returns the translation of the line with its links to the line; see `finished`."""
        sentences = self._translated(sentences)
        result = restored(self.removed, sentences, self.remaining)
        pairs = [(each.start, each.start + len(each.text)) for each in self.removed]
        # One mark of the line may be several units of the text, such as "..." for "…".
        places = [
            place
            for place in _units_outside(self.source, pairs)
            for _ in units(self.readable(self.source[slice(*place)]))
        ]
        numbers: list[int] = []  # of the source unit of each target unit
        weak_numbers: list[list[int]] = []
        offset = 0
        for sentence in sentences:
            targets = units(sentence.translation.text)
            numbers += [offset + number if number >= 0 else -1 for number in source_units(sentence, targets)]
            weak_numbers += [[offset + number for number in each] for each in weak_source_units(sentence, targets)]
            offset += len(units(sentence.source))
        links = [(*target, *source) for target, source in zip(result.ranges, pairs, strict=True)]
        weak_links = []
        targets = _units_outside(result.text, result.ranges)
        for target, number, others in zip(targets, numbers, weak_numbers, strict=False):
            if 0 <= number < len(places):
                links.append((*target, *places[number]))
            weak_links += [(*target, *places[other]) for other in others if other < len(places)]
        return AlignedText(result.text, tuple(links), tuple(weak_links))

    def _translated(self, sentences: Sequence[Sentence], intact: Sequence[str] = ()) -> list[Sentence]:
        """Returns the sentences with translations in the case of their sources and without invented spans."""
        spans = [span for each in self.removed for span in each.text.split()]
        invented = [span for span in spans if not any(span in phrase for phrase in intact)]
        results = []
        for sentence, case in itertools.zip_longest(sentences, self.cases[: len(sentences)]):
            translation = without_spans(sentence.translation, invented)
            results.append(sentence._replace(translation=_cased(translation, case) if case else translation))
        return results


class Preparation:
    """Prepares lines for a model.

    Args:
        finder: finds protected spans.
        languages: the languages of the lines and of their translations.
        num_tokens: returns the number of tokens of a source; None to keep unusual case.
        lowercases: whether the model reads lowercased text, so that it knows no case.
        splits: whether lines are translated sentence by sentence.
        symbols: symbols of the vocabulary; one of them may precede a line and is not part of its text.
    """

    def __init__(
        self,
        finder: SpanFinder,
        languages: Languages,
        num_tokens: Callable[[str], int] | None = None,
        *,
        lowercases: bool = False,
        splits: bool = True,
        symbols: Collection[str] = (),
    ) -> None:
        self._head = re.compile(f"(?:{'|'.join(map(re.escape, sorted(symbols)))})\\s*") if symbols else None
        self._finder, self._languages = finder, languages
        self._num_tokens, self._lowercases, self._splits = num_tokens, lowercases, splits

    def __call__(self, line: str, *, keeps_spans: bool = True, keeps_case: bool = False) -> Prepared | None:
        """Prepares a line.

        Args:
            line: the line.
            keeps_spans: whether protected spans without unknown characters remain in the text at first.
            keeps_case: whether unusual case is kept.

        Returns:
            The prepared line, or None if the model reads the line as it is.
        """
        has_spans = self._finder.has_spans(line)
        if not has_spans and (keeps_case or not self._num_tokens):
            return None
        source = UNPRINTABLE.sub("", without_surrogates(line)).strip()
        spans = self._finder.spans(source) if has_spans else []
        if not keeps_spans:
            spans = [span._replace(is_removed=True) for span in spans]
        text, removed = remove(source, spans, self._finder)
        cases: list[SentenceCase] = []
        plain = text if keeps_case or not self._num_tokens else self._in_ordinary_case(text, cases)
        if cases and not all(span.is_removed for span in spans):
            return self(line, keeps_spans=False)  # a change of case would change the spans
        if not spans and plain == source:
            return None
        unknown = tuple(source[span.start : span.end] for span in spans if span.is_unknown)
        remaining = tuple(source[span.start : span.end] for span in spans if not span.is_removed)
        if not any(map(str.isalnum, plain[len(self.head(plain)) :])):
            whole = source[len(self.head(source)) :]
            return Prepared(source, "", (Removed(whole, 0, 0, "", ""),) if whole else (), (), unknown, ())
        return Prepared(source, plain, tuple(removed), remaining, unknown, tuple(cases), self._finder.readable)

    def head(self, text: str) -> str:
        """Returns the symbol at the beginning of a text and the white space after it; "" if there is none."""
        match = self._head.match(text) if self._head else None
        return match[0] if match else ""

    def _in_ordinary_case(self, text: str, cases: list[SentenceCase]) -> str:
        """Returns a text with all sentences in ordinary case; if one was not, adds the case of each to `cases`."""
        source, target = self._languages
        head = self.head(text)
        rest = text[len(head) :]
        sentences = splitting.find_sentences(rest, source) if self._splits else [splitting.Sentence("", rest)]
        results, result = [], head
        for sentence in sentences:
            case = self._case_of(sentence.text)
            plain = ordinary(sentence.text, source) if case else sentence.text
            results.append(SentenceCase(case, sentence.text, target))
            result += sentence.before + plain
        if any(each.case for each in results):
            cases += results
        return result if cases else text

    def _case_of(self, sentence: str) -> Case | None:
        """Returns the case of a sentence if the model does not know it."""
        case = case_of(sentence, self._languages.source)
        if not case or self._lowercases or not self._num_tokens:
            return case
        plain = ordinary(sentence, self._languages.source)
        return case if is_unfamiliar(sentence, plain, self._num_tokens) else None


def _units_outside(text: str, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the start and end of each unit of the parts of a text that remain without disjoint ranges."""
    starts, ends = zip(*sorted(ranges), strict=True) if ranges else ((), ())
    parts = zip([0, *ends], [*starts, len(text)], strict=True)
    return [(first + start, first + end) for first, last in parts for start, end in units(text[first:last])]


def _cased(translation: AlignedText, case: SentenceCase) -> AlignedText:
    """Returns a translation in the case of its source; capitals of several characters move the links after them."""
    if case.case is None:
        return translation
    text = in_case(translation.text, case.case, case.source, case.language)
    lengths = [1 if len(text) == len(translation.text) else len(character.upper()) for character in translation.text]
    return translation.edited(text, [0, *itertools.accumulate(lengths)])

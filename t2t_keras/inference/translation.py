"""Builds the translations of lines from search results; joins the parts of lines that were split."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

import numpy as np

from t2t_keras.symbols import EOS_ID
from t2t_keras.tasks.task import Task
from t2t_keras.text.repair import repair
from t2t_keras.text.sentences import BREAK
from t2t_keras.text.text_tokenizer import TextTokenizer
from t2t_keras.text.truecase import capitalised

if TYPE_CHECKING:
    from t2t_keras.inference.request import EncodedRequest
    from t2t_keras.search.beam_search import SearchResult


class TermUse(NamedTuple):
    """How a glossary term in a line was translated.

    Attributes:
        source: the term.
        form: the term's form that the translation contains; "" if it contains none.
        is_forced: whether the form is due to the glossary, because the unconstrained translation contained none.
        forms: all forms that the glossary allows for the term.
    """

    source: str
    form: str
    is_forced: bool
    forms: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Translation:
    """The translation of one line.

    Attributes:
        text: the translation; empty for a blank line. Sentences are separated by the white space of the line, which may
            contain line breaks.
        score: log-probability divided by the length penalty, plus the coverage score if enabled; summed over parts. It
            is 0 for a blank line, -inf if the search found no translation, and may be NaN if scores were not requested.
        log_prob: total log-probability, summed over parts; may be NaN if scores were not requested.
        num_tokens: number of generated tokens, end symbols included.
        num_parts: number of parts: 0 for a blank line, more than 1 if the line was split into sentences or a sentence
            was too long for one part.
        source_ids: source token ids of each part, end symbols included.
        token_ids: token ids that the search chose for each part, with the end symbol unless the length limit was
            reached first. Tokenizing the text again may give different ids.
        terms: how the glossary's terms in the line were translated, part by part.
        sentences: the translations of the line's sentences as the model read them, without the spans that were removed;
            empty for a line that was not split into sentences.
        unknown: the spans of the line with characters that the training text never had, in order; they are not
            translated.
    """

    text: str
    score: float = 0.0
    log_prob: float = 0.0
    num_tokens: int = 0
    num_parts: int = 0
    source_ids: tuple[tuple[int, ...], ...] = dataclasses.field(default=(), repr=False)
    token_ids: tuple[tuple[int, ...], ...] = dataclasses.field(default=(), repr=False)
    terms: tuple[TermUse, ...] = ()
    sentences: tuple["TranslatedSentence", ...] = dataclasses.field(default=(), repr=False)
    unknown: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The text on one line, with a space in place of each line break."""
        return BREAK.sub(" ", self.text)

    @property
    def is_overlong(self) -> bool:
        """Whether a sentence was too long for one part."""
        parts = [each.translation for each in self.sentences] or [self]
        return any(part.num_parts > 1 for part in parts)

    @property
    def exists(self) -> bool:
        """Whether the search found a translation."""
        return self.score != -np.inf

    @property
    def is_cut(self) -> bool:
        """Whether the output of at least one part reached the length limit before its end symbol."""
        return any(ids and ids[-1] != EOS_ID for ids in self.token_ids)


class TranslatedSentence(NamedTuple):
    """The translation of one sentence of a line.

    Attributes:
        before: the white space in front of the sentence, in the line and in the line's translation.
        source: the sentence.
        translation: its translation.
    """

    before: str
    source: str
    translation: Translation


def translations_of_result(
    result: "SearchResult", sources: Sequence[Sequence[int]], tokenizer: TextTokenizer, num_best: int
) -> list[list[Translation]]:
    """Converts a search's result to translations.

    Args:
        result: the result for a batch of parts.
        sources: token ids of the parts, end symbols included.
        tokenizer: decodes the outputs.
        num_best: maximum number of translations per part.

    Returns:
        The translations of each part, in the search's order. A part without hypotheses has one translation whose
        `exists` is false.
    """
    token_ids, *numbers = (values.numpy()[:, :num_best] for values in result)
    translations = []
    for source, *hypotheses in zip(sources, token_ids, *numbers, strict=True):
        row = [
            Translation(
                repair(tokenizer.decode(ids)),  # byte fallback can produce any character, even a line break
                float(score),
                float(log_prob),
                int(length),
                1,
                (tuple(source),),
                (tuple(ids[:length].tolist()),),
            )
            for ids, score, log_prob, length in zip(*hypotheses, strict=True)
            if length
        ]
        missing = Translation("", -np.inf, -np.inf, 0, 1, (tuple(source),), ((),))
        translations.append(row or [missing])
    return translations


def translations_of_line(
    task: Task,
    request: "EncodedRequest",
    parts: Sequence[Sequence[Translation]],
    num_best: int,
    *,
    by_score: bool,
    capitalises: bool,
) -> list[Translation]:
    """Joins the translations of a line's parts and post-processes the results as the task requires.

    Args:
        task: the task.
        request: the line.
        parts: the translations of each part, best first.
        num_best: maximum number of translations of the line.
        by_score: see `combinations`.
        capitalises: whether the translation of each sentence gets a capital first letter.
    """
    if task.context and len(parts) > 1:
        results = best_answers(parts, num_best, task.no_answer)
    else:
        if capitalises:
            parts = _capitalise(request, parts)
        results = [_line(request, combination) for combination in combinations(parts, num_best, by_score)]
    return [_finish(task, request.text, translation) for translation in results]


def _capitalise(request: "EncodedRequest", parts: Sequence[Sequence[Translation]]) -> list[list[Translation]]:
    """Capitalises the translations of the parts with which the sentences of a line begin."""
    counts = [count for _, count in request.sentences]  # empty if the line is a single sentence
    firsts = {0, *itertools.accumulate(counts)}
    return [
        [dataclasses.replace(each, text=capitalised(each.text)) for each in part] if number in firsts else list(part)
        for number, part in enumerate(parts)
    ]


def _line(request: "EncodedRequest", parts: Sequence[Translation]) -> Translation:
    """Joins one translation of each part of a line, and groups the parts by sentence."""
    if not request.sentences:
        return join_parts(parts)
    remaining = iter(parts)
    sentences = tuple(
        TranslatedSentence(*sentence, join_parts([next(remaining) for _ in range(count)]))
        for sentence, count in request.sentences
    )
    between = [blank for sentence, count in request.sentences for blank in (sentence.before, *" " * (count - 1))]
    return dataclasses.replace(join_parts(parts, between), sentences=sentences)


def _finish(task: Task, source: str, translation: Translation) -> Translation:
    text = task.finish(source, translation.text) if translation.exists else translation.text
    return translation if text == translation.text else dataclasses.replace(translation, text=text)


def join_parts(parts: Sequence[Translation], between: Sequence[str] = ()) -> Translation:
    """Joins the translations of a line's parts; without parts, the result is empty.

    `between` is the white space in front of each part, by default a single blank. A single blank is dropped next to an
    empty text, and so in front of the first part.
    """
    if len(parts) == 1:
        return parts[0]
    missing = [part for part in parts if not part.exists]
    text = ""
    for part, before in zip(parts, between or [" "] * len(parts), strict=True):
        text += before + part.text if before != " " or (text and part.text) else part.text
    return Translation(
        text,
        sum(part.score for part in missing or parts),  # -inf + NaN would be NaN
        sum(part.log_prob for part in missing or parts),
        sum(part.num_tokens for part in parts),
        len(parts),
        tuple(ids for part in parts for ids in part.source_ids),
        tuple(ids for part in parts for ids in part.token_ids),
        tuple(term for part in parts for term in part.terms),
    )


def best_answers(parts: Sequence[Sequence[Translation]], num_best: int, no_answer: str) -> list[Translation]:
    """Returns the `num_best` best of all translations of a line's parts, or an empty translation without parts.

    Parts whose best translation is `no_answer` are ignored, unless this is true of all parts.
    """
    answers = [part for part in parts if part[0].text != no_answer] or parts
    candidates = [dataclasses.replace(each, num_parts=len(parts)) for part in answers for each in part]
    return sorted(candidates, key=lambda translation: -translation.score)[:num_best] or [join_parts([])]


class _Scored(Protocol):
    @property
    def score(self) -> float: ...


_ScoredT = TypeVar("_ScoredT", bound=_Scored)


def combinations(parts: Sequence[Sequence[_ScoredT]], num_best: int, by_score: bool) -> list[tuple[_ScoredT, ...]]:
    """Combines the translations of a line's parts; without parts, the only combination is empty.

    Args:
        parts: the translations of each part, best first.
        num_best: maximum number of combinations with `by_score`.
        by_score: whether to return the combinations with the largest sums of scores. If not, the n-th combination
            consists of the n-th translation of each part.
    """
    if not by_score:
        return list(zip(*parts, strict=False)) or [()]
    best: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for part in parts:
        sums = [(total + t.score, (*places, place)) for total, places in best for place, t in enumerate(part)]
        best = sorted(sums, key=lambda item: -item[0])[:num_best]  # stable: equal sums keep their order
    return [tuple(part[place] for part, place in zip(parts, places, strict=True)) for _, places in best]

"""Translations of lines, from search results, and joined from parts for lines that were split."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from t2t_keras.symbols import EOS_ID
from t2t_keras.tasks.task import Task
from t2t_keras.text.repair import repair
from t2t_keras.text.sentences import BREAK
from t2t_keras.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from t2t_keras.inference.request import EncodedRequest
    from t2t_keras.search.beam_search import SearchResult


class TermUse(NamedTuple):
    """What became of a glossary's term that a line has.

    Attributes:
        source: the term.
        form: its form that the translation has; "" if it has none.
        is_forced: whether the model wrote another translation without the glossary, which had no form of it.
        forms: what it might have been.
    """

    source: str
    form: str
    is_forced: bool
    forms: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Translation:
    """The translation of one line.

    Attributes:
        text: the translation; empty for a blank line. White space between sentences, which may be line breaks, is that
            of the line.
        score: log-probability over length penalty, plus the coverage score if enabled; summed over parts, 0 for a blank
            line, -inf if the search found no translation, NaN if scores were not requested.
        log_prob: total log-probability, summed over parts; NaN likewise.
        num_tokens: number of generated tokens, end symbols included.
        num_parts: number of parts: 0 for a blank line, more than 1 for several sentences, or one that was too long.
        source_ids: token ids of each part, end symbols included.
        token_ids: token ids that the search chose for each part, with the end symbol unless the length limit came
            first. Tokenizing the text again may give others.
        terms: the terms of the translator's glossary that the line has, part by part.
        sentences: what became of each of several sentences; empty for a line that was not split.
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

    @property
    def line(self) -> str:
        """The text on one line: a blank in place of each line break."""
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
        """Whether the limit of the length came before an end symbol, in one of the parts at least."""
        return any(ids and ids[-1] != EOS_ID for ids in self.token_ids)


class TranslatedSentence(NamedTuple):
    """One of several sentences of a line.

    Attributes:
        before: the white space in front of it, in the line and in its translation.
        source: the sentence.
        translation: its translation.
    """

    before: str
    source: str
    translation: Translation


def found_translations(
    result: "SearchResult", sources: Sequence[Sequence[int]], tokenizer: Tokenizer, num_best: int
) -> list[list[Translation]]:
    """Up to `num_best` translations of each sentence of a batch, in the search's order; `sources` include end symbols.

    A sentence without hypotheses gets one translation that does not exist.
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
    task: Task, request: "EncodedRequest", parts: Sequence[Sequence[Translation]], num_best: int, by_score: bool
) -> list[Translation]:
    """Up to `num_best` translations of a line from those of its parts, finished by its task.

    For `by_score` see `combinations`.
    """
    if task.context and len(parts) > 1:
        found = chosen_list(parts, num_best, task.no_answer)
    else:
        found = [_line(request, combination) for combination in combinations(parts, num_best, by_score)]
    return [_finished(task, request.text, translation) for translation in found]


def _line(request: "EncodedRequest", parts: Sequence[Translation]) -> Translation:
    """The translation of a line, from those of its parts."""
    if not request.sentences:
        return joined(parts)
    remaining = iter(parts)
    sentences = tuple(
        TranslatedSentence(*sentence, joined([next(remaining) for _ in range(count)]))
        for sentence, count in request.sentences
    )
    between = [blank for sentence, count in request.sentences for blank in (sentence.before, *" " * (count - 1))]
    return dataclasses.replace(joined(parts, between), sentences=sentences)


def _finished(task: Task, source: str, translation: Translation) -> Translation:
    text = task.finish(source, translation.text) if translation.exists else translation.text
    return translation if text == translation.text else dataclasses.replace(translation, text=text)


def joined(parts: Sequence[Translation], between: Sequence[str] = ()) -> Translation:
    """Joins the translations of a line's parts, of which there may be none.

    `between` are what stands in front of each part, of the first one nothing; a single blank, the usual one, is left
    out beside an empty text.
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


def chosen_list(parts: Sequence[Sequence[Translation]], num_best: int, no_answer: str) -> list[Translation]:
    """The `num_best` best of all translations of a line's parts; without parts, the line's translation is empty.

    Parts whose best translation is `no_answer` are left out, unless all are like that.
    """
    answering = [part for part in parts if part[0].text != no_answer] or parts
    candidates = [dataclasses.replace(each, num_parts=len(parts)) for part in answering for each in part]
    return sorted(candidates, key=lambda translation: -translation.score)[:num_best] or [joined([])]


def combinations(
    parts: Sequence[Sequence[Translation]], num_best: int, by_score: bool
) -> list[tuple[Translation, ...]]:
    """Combinations of translations of a line's parts; without parts, that of none.

    With `by_score`, returns the `num_best` best sums of scores, else all first ones, then all second ones, ...
    """
    if not by_score:
        return list(zip(*parts, strict=False)) or [()]
    best: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for part in parts:
        longer = [(total + t.score, (*places, place)) for total, places in best for place, t in enumerate(part)]
        best = sorted(longer, key=lambda item: -item[0])[:num_best]  # stable: equal sums keep their order
    return [tuple(part[place] for part, place in zip(parts, places, strict=True)) for _, places in best]

"""What became of a line: translations, and how those of its parts make up that of a line that was cut."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from t2t_keras.search.beam_search import SearchResult
from t2t_keras.text.repair import repair
from t2t_keras.text.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class Translation:
    """What became of one line.

    Attributes:
        text: the translation, without line breaks; empty for a blank line.
        score: log-probability over length penalty, and the coverage score if there is one; 0 for a blank line,
            the sum over its parts for a long one, -inf if the rules of the search left no translation, NaN if it was
            not asked for.
        log_prob: total log-probability, summed over parts; NaN likewise.
        num_tokens: tokens that were generated, end symbols counted.
        num_parts: pieces that the line was translated in: 0 if it was blank, above 1 if it was too long for one.
        source_ids: the token ids of each part, end symbols included.
        token_ids: the token ids that the search chose for each part, the end symbol included where it came
            before the length limit. Another run of the tokenizer over the text may give others.
    """

    text: str
    score: float = 0.0
    log_prob: float = 0.0
    num_tokens: int = 0
    num_parts: int = 0
    source_ids: tuple[tuple[int, ...], ...] = dataclasses.field(default=(), repr=False)
    token_ids: tuple[tuple[int, ...], ...] = dataclasses.field(default=(), repr=False)

    @property
    def exists(self) -> bool:
        """Whether the search found one."""
        return self.score != -np.inf


def found_translations(
    result: SearchResult, sources: Sequence[Sequence[int]], tokenizer: Tokenizer, num_best: int
) -> list[list[Translation]]:
    """The hypotheses of one batch, in the search's order.

    Args:
        result: of the search.
        sources: token ids of each sentence, end symbols included.
        tokenizer: of the vocabulary.
        num_best: hypotheses wanted of each.

    Returns:
        Up to `num_best` translations a sentence; one that does not exist where the search found none.
    """
    token_ids, *numbers = (values[:, :num_best].numpy() for values in result)
    found = []
    for source, *hypotheses in zip(sources, token_ids, *numbers, strict=True):
        row = [
            Translation(
                repair(tokenizer.decode(ids)),  # byte fallback can spell any character, so also a line break
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
        found.append(row or [missing])
    return found


def joined(parts: Sequence[Translation]) -> Translation:
    """The translation of a line from those of its parts, of which there may be none."""
    if len(parts) == 1:
        return parts[0]
    missing = [part for part in parts if not part.exists]
    return Translation(
        " ".join(part.text for part in parts if part.text),
        sum(part.score for part in missing or parts),  # -inf and NaN make NaN
        sum(part.log_prob for part in missing or parts),
        sum(part.num_tokens for part in parts),
        len(parts),
        tuple(ids for part in parts for ids in part.source_ids),
        tuple(ids for part in parts for ids in part.token_ids),
    )


def joined_lists(parts: Sequence[Sequence[Translation]], num_best: int, by_score: bool) -> list[Translation]:
    """The translations of a line that its parts' translations make up.

    Args:
        parts: the translations of each part; of no part at all, the line's translation is empty.
        num_best: most that are wanted.
        by_score: whether those are wanted with the best sums of scores; else the first of every part make the
            first, and so on.
    """
    if not by_score:
        return [joined(row) for row in zip(*parts, strict=False)] or [joined([])]
    best: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for part in parts:
        longer = [(total + t.score, (*places, place)) for total, places in best for place, t in enumerate(part)]
        best = sorted(longer, key=lambda item: -item[0])[:num_best]  # stable: equal sums keep their order
    return [joined([part[place] for part, place in zip(parts, places, strict=True)]) for _, places in best]

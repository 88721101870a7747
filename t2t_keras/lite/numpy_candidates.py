"""The most probable tokens of wide rows, in NumPy."""

from typing import NamedTuple

import numpy as np

from t2t_keras.symbols import EOS_ID, PAD_ID

_PARTS = 8  # that a row is folded into
_FOLDED_TWICE = _PARTS**2 * 8  # columns from which on that is worth its while
_SLACK = 1e-3  # by which a bound is lowered, since sums that are made in another order differ in their last bits


class Candidates(NamedTuple):
    """As `t2t_keras.search.candidates.Candidates`, in NumPy: [sentences, candidates] each, best first."""

    log_probs: np.ndarray
    token_ids: np.ndarray
    parents: np.ndarray


def folded(values: np.ndarray) -> np.ndarray:
    """The largest of entries that lie a fixed distance apart, which takes one look at every entry.

    Args:
        values: float32 [rows, columns], at least `_PARTS` columns.

    Returns:
        float32 [rows, width], width = columns // _PARTS, of which entry i is the largest of values i, i + width, ...
    """
    rows, columns = values.shape
    width = columns // _PARTS
    parts = values[:, : _PARTS * width].reshape(rows, _PARTS, width)  # no copy if nothing is left over
    result = parts.max(axis=1)  # --> [rows, width]
    for start in range(_PARTS * width, columns, width):
        left_over = values[:, start : start + width]
        np.maximum(result[:, : left_over.shape[1]], left_over, out=result[:, : left_over.shape[1]])
    return result


def best_candidates(
    logits: np.ndarray, log_totals: np.ndarray, living_log_probs: np.ndarray, may_end: np.ndarray
) -> Candidates:
    """`t2t_keras.search.candidates.best_candidates` for a beam of several.

    What is among the best is found by bounds. Each row is folded, and folded again, and the best results of all rows
    of a sentence say how good an entry must be. Few entries are, and only those are sorted.

    Args:
        logits: float32 [sentences * beam, vocab].
        log_totals: float32 [sentences * beam], the logarithm of each row's sum of exponentials.
        living_log_probs: float32 [sentences, beam], -inf in a slot without a hypothesis.
        may_end: bool [sentences], whether the end symbol may come.

    Returns:
        2 * beam of each sentence.
    """
    sentences, beam = living_log_probs.shape
    broken = np.isnan(log_totals)
    if broken.any():  # logits that are no numbers continue nothing
        logits, log_totals = np.where(broken[:, np.newaxis], np.float32(0), logits), np.where(broken, 0, log_totals)
        living_log_probs = np.where(broken.reshape(sentences, beam), np.float32(-np.inf), living_log_probs)
    vocab = logits.shape[1]
    fold = folded(logits) if vocab >= _FOLDED_TWICE else logits  # --> [sentences * beam, width]
    width = fold.shape[1]
    offsets = living_log_probs.reshape(-1) - log_totals  # --> [sentences * beam]
    bounds = _bounds(folded(fold) if width < vocab else fold, offsets, beam)
    rows, places = np.divmod(np.flatnonzero(fold >= bounds[:, np.newaxis]), width)
    columns = places[:, np.newaxis] + np.arange(0, vocab, width)  # --> [found, parts]
    values = logits[rows[:, np.newaxis], np.minimum(columns, vocab - 1)]
    found, part = np.nonzero((values >= bounds[rows, np.newaxis]) & (columns < vocab))
    rows, token_ids, values = rows[found], columns[found, part], values[found, part]  # --> [candidates] each

    owners = rows // beam
    log_probs = values + offsets[rows]
    log_probs[(token_ids == PAD_ID) | ((token_ids == EOS_ID) & ~may_end[owners])] = -np.inf
    order = np.lexsort((token_ids, rows, -log_probs, owners))
    firsts = np.searchsorted(owners[order], np.arange(sentences))
    best = order[firsts[:, np.newaxis] + np.arange(2 * beam)]  # --> [sentences, candidates]
    return Candidates(log_probs[best], token_ids[best].astype(np.int32), (rows % beam)[best].astype(np.int32))


def _bounds(fold: np.ndarray, offsets: np.ndarray, beam: int) -> np.ndarray:
    """What a logit of each row must reach to be looked at, float32 [sentences * beam].

    Args:
        fold: float32 [sentences * beam, width], entries of the rows, among them each row's largest.
        offsets: float32 [sentences * beam], what makes a logit the log-probability of a hypothesis.
        beam: hypotheses a sentence.
    """
    ranks = (fold + offsets[:, np.newaxis]).reshape(-1, beam * fold.shape[1])
    count = 4 * beam  # twice as many as are wanted: padding and ends, one of each a hypothesis, may not come
    if ranks.shape[1] < count:
        return np.full(len(offsets), -np.inf, np.float32)
    least = np.partition(ranks, -count, axis=1)[:, -count] - np.float32(_SLACK)
    bounds = np.repeat(least, beam)
    # Where fewer entries are possible all are looked at; else none of a hypothesis that is none.
    return np.subtract(bounds, offsets, out=bounds, where=np.isfinite(bounds))

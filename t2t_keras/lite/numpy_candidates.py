"""The candidates of a step of beam search, in NumPy."""

from typing import NamedTuple

import numpy as np

from t2t_keras.symbols import EOS_ID, PAD_ID

_PARTS = 8  # parts that a row is folded into
_FOLDED_TWICE = _PARTS**2 * 8  # columns from which on it pays to fold twice
_SLACK = 1e-3  # lowers bounds, since sums in another order differ in their last bits


class Candidates(NamedTuple):
    """`t2t_keras.search.candidates.Candidates` in NumPy: [sentences, candidates] each, best first."""

    log_probs: np.ndarray
    token_ids: np.ndarray
    parents: np.ndarray


def folded(values: np.ndarray) -> np.ndarray:
    """The largest of entries that lie width = columns // _PARTS apart, in one pass over float32 [rows, columns].

    Entry i of the result, float32 [rows, width], is the largest of entries i, i + width, ... of its row.
    """
    rows, columns = values.shape
    width = columns // _PARTS
    parts = values[:, : _PARTS * width].reshape(rows, _PARTS, width)  # no copy if columns divide evenly
    result = parts.max(axis=1)  # --> [rows, width]
    for start in range(_PARTS * width, columns, width):
        left_over = values[:, start : start + width]
        np.maximum(result[:, : left_over.shape[1]], left_over, out=result[:, : left_over.shape[1]])
    return result


def best_candidates(
    logits: np.ndarray, log_totals: np.ndarray, living_log_probs: np.ndarray, may_end: np.ndarray
) -> Candidates:
    """`t2t_keras.search.candidates.best_candidates` for a beam of several: 2 * beam candidates per sentence.

    Each row is folded, and folded again; the best results of a sentence's rows give a bound that candidates must reach.
    Few entries do, and only those are sorted.

    Args:
        logits: float32 [sentences * beam, vocab].
        log_totals: float32 [sentences * beam], log-sum-exp of each row.
        living_log_probs: float32 [sentences, beam], -inf in an empty slot.
        may_end: bool [sentences], whether the end symbol is allowed.
    """
    sentences, beam = living_log_probs.shape
    broken = np.isnan(log_totals)
    if broken.any():  # a row with NaN logits has no candidates
        logits, log_totals = np.where(broken[:, np.newaxis], np.float32(0), logits), np.where(broken, 0, log_totals)
        living_log_probs = np.where(broken.reshape(sentences, beam), np.float32(-np.inf), living_log_probs)
    vocab = logits.shape[1]
    fold = folded(logits) if vocab >= _FOLDED_TWICE else logits  # --> [sentences * beam, width]
    width = fold.shape[1]
    offsets = living_log_probs.reshape(-1) - log_totals  # --> [sentences * beam]
    bounds = _bounds(folded(fold) if width < vocab else fold, offsets, beam)
    rows, places = np.divmod(np.flatnonzero(fold >= bounds[:, np.newaxis]), width)
    columns = places[:, np.newaxis] + np.arange(0, vocab, width)  # --> [hits, parts]
    values = logits[rows[:, np.newaxis], np.minimum(columns, vocab - 1)]
    hits, part = np.nonzero((values >= bounds[rows, np.newaxis]) & (columns < vocab))
    rows, token_ids, values = rows[hits], columns[hits, part], values[hits, part]  # --> [candidates] each

    owners = rows // beam
    log_probs = values + offsets[rows]
    log_probs[(token_ids == PAD_ID) | ((token_ids == EOS_ID) & ~may_end[owners])] = -np.inf
    order = np.lexsort((token_ids, rows, -log_probs, owners))
    firsts = np.searchsorted(owners[order], np.arange(sentences))
    best = order[firsts[:, np.newaxis] + np.arange(2 * beam)]  # --> [sentences, candidates]
    return Candidates(log_probs[best], token_ids[best].astype(np.int32), (rows % beam)[best].astype(np.int32))


def _bounds(fold: np.ndarray, offsets: np.ndarray, beam: int) -> np.ndarray:
    """The least logit of each row to consider, float32 [sentences * beam], from folded rows [sentences * beam, width]
    and the offsets [sentences * beam] that make logits total log-probabilities.
    """
    ranks = (fold + offsets[:, np.newaxis]).reshape(-1, beam * fold.shape[1])
    count = 4 * beam  # twice the candidates, as padding and end symbol of each hypothesis may be barred
    if ranks.shape[1] < count:
        return np.full(len(offsets), -np.inf, np.float32)
    least = np.partition(ranks, -count, axis=1)[:, -count] - np.float32(_SLACK)
    bounds = np.repeat(least, beam)
    # A bound of -inf admits all entries of a sentence; the bound of an empty slot becomes inf and admits none.
    return np.subtract(bounds, offsets, out=bounds, where=np.isfinite(bounds))

"""Greedy search over a session, in NumPy: `t2t_keras.decoding.greedy` without an operation of TensorFlow."""

import numpy as np

from t2t_keras.config import EOS_ID, PAD_ID
from t2t_keras.decoding.lite.session import Session


def greedy_search(
    session: Session, table: np.ndarray, positions: np.ndarray, max_lengths: np.ndarray, min_lengths: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Takes the most probable token at every step.

    Args:
        session: that has begun, with a beam of one.
        table: float32 [vocab, d_model], embedded tokens.
        positions: float32 [steps, d_model], what is added to them; as many as the largest of the limits.
        max_lengths: int32 [batch], most tokens of an output; 0 leaves a sentence out.
        min_lengths: int32 [batch], tokens of an output before its end symbol.

    Returns:
        Token ids int32 [batch, steps made], total log-probabilities float32 [batch], and lengths int32 [batch]; see
        `t2t_keras.decoding.greedy.GreedyResult`.
    """
    texts = np.full([len(max_lengths), len(positions)], PAD_ID, np.int32)
    log_probs = np.zeros(len(max_lengths), np.float32)
    done = max_lengths <= 0
    sentences = np.flatnonzero(~done).astype(np.int32)
    tokens = np.full(len(sentences), PAD_ID)
    length = 0
    while len(sentences):
        session.advance(table[tokens] + positions[length], sentences)
        open_now = ~done[sentences]
        tokens, gained = _choose(*session.predictions(), length < min_lengths[sentences])
        tokens = np.where(open_now & np.isfinite(gained), tokens, PAD_ID)
        texts[sentences, length] = tokens
        log_probs[sentences] += np.where(open_now, gained, 0.0)
        length += 1
        done[sentences] |= (tokens <= EOS_ID) | (length >= max_lengths[sentences])
        left = ~done[sentences]
        if 4 * np.count_nonzero(left) <= 3 * len(sentences):  # leaving copies all that is kept
            sentences, tokens = sentences[left], tokens[left]
    lengths = np.count_nonzero(texts, axis=1).astype(np.int32)
    impossible = np.isinf(log_probs)
    texts[impossible], lengths[impossible] = PAD_ID, 0
    return texts[:, :length], log_probs, lengths


def _choose(logits: np.ndarray, probabilities: np.ndarray, too_early: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The most probable token that may come, and its log-probability, [rows] each.

    Args:
        logits: float32 [rows, vocab].
        probabilities: float32 [rows, vocab], their softmax.
        too_early: bool [rows], whether the end symbol may not come.
    """
    rows = np.arange(len(logits))
    best = logits.argmax(axis=1)
    chosen = best
    barred = (best == PAD_ID) | ((best == EOS_ID) & too_early)
    if barred.any():
        chosen = best.copy()
        for row in np.flatnonzero(barred):
            allowed = logits[row].copy()
            allowed[[PAD_ID, EOS_ID] if too_early[row] else [PAD_ID]] = -np.inf
            chosen[row] = allowed.argmax()
    behind = logits[rows, chosen] - logits[rows, best]
    behind[(chosen == PAD_ID) | ((chosen == EOS_ID) & too_early)] = -np.inf  # there is nothing but what may not come
    return chosen, behind + np.log(probabilities[rows, best])

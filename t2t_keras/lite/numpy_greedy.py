"""Greedy search over a session, in NumPy: `t2t_keras.search.greedy` without TensorFlow's operations."""

import numpy as np

from t2t_keras.lite.numpy_beam_search import Limits
from t2t_keras.lite.session import Session
from t2t_keras.search.leaving import is_time_to_leave
from t2t_keras.symbols import EOS_ID, PAD_ID


def greedy_search(
    session: Session, table: np.ndarray, positions: np.ndarray, limits: Limits, scored: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Takes the most probable token at every step; see `BeamSearch` for arguments and result, here of one hypothesis.

    The session has a beam of one, and `log_totals` if scored; otherwise finite log-probabilities are returned as NaN.
    """
    max_lengths, min_lengths = limits.max_lengths, limits.min_lengths
    texts = np.full([len(max_lengths), len(positions)], PAD_ID, np.int32)
    log_probs = np.zeros(len(max_lengths), np.float32)
    sentences = np.flatnonzero(max_lengths > 0).astype(np.int32)
    tokens, done = np.full(len(sentences), PAD_ID), np.zeros(len(sentences), bool)
    length = 0
    while len(sentences):
        session.advance(table[tokens] + positions[length], sentences)
        tokens, gained = _choose(session, length < min_lengths[sentences], scored)
        tokens[done | ~np.isfinite(gained)] = PAD_ID
        texts[sentences, length] = tokens
        log_probs[sentences] += np.where(done, 0.0, gained)
        length += 1
        done |= (tokens <= EOS_ID) | (length >= max_lengths[sentences])
        if is_time_to_leave(np.count_nonzero(done), len(sentences)):
            sentences, tokens, done = sentences[~done], tokens[~done], done[~done]
    lengths = np.count_nonzero(texts, axis=1).astype(np.int32)
    impossible = ~np.isfinite(log_probs)
    texts[impossible], lengths[impossible], log_probs[impossible] = PAD_ID, 0, -np.inf
    if not scored:
        log_probs[~impossible] = np.nan
    results = texts[:, :length], log_probs / limits.penalties[lengths], log_probs, lengths
    return tuple(values[:, np.newaxis] for values in results)  # --> [batch, 1, ...]


def _choose(session: Session, too_early: np.ndarray, scored: bool) -> tuple[np.ndarray, np.ndarray]:
    """The most probable allowed token, [rows], and its log-probability, float32 [rows], or if not scored 0 or -inf.

    `too_early`, bool [rows], bars the end symbol.
    """
    logits = session.logits_in_place()
    best = logits.argmax(axis=1)
    largest = logits[np.arange(len(best)), best]
    log_probs = largest - (session.log_totals() if scored else largest)
    chosen = best.copy()
    for row in np.flatnonzero((best == PAD_ID) | ((best == EOS_ID) & too_early)):
        allowed = logits[row].copy()
        allowed[[PAD_ID, EOS_ID] if too_early[row] else [PAD_ID]] = -np.inf
        chosen[row] = allowed.argmax()
        behind = allowed[chosen[row]] - largest[row]  # -inf if all tokens are barred
        log_probs[row] += behind if scored or np.isinf(behind) else 0.0
    return chosen, log_probs

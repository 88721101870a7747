"""Beam search and exhaustive search in plain Python and NumPy, sentence by sentence: what the search must equal.

Nothing here is shared with the package: hypotheses are tuples, sorting is
Python's, and log-probabilities are float64.
"""

import itertools
from collections.abc import Callable

import numpy as np

PAD, EOS = 0, 1
LogProbs = Callable[[tuple[int, ...]], np.ndarray]  # of the next token, given all tokens so far


def penalty(length: int, alpha: float) -> float:
    return ((5 + length) / 6) ** alpha


def log_softmax(logits: np.ndarray) -> np.ndarray:
    logits = logits.astype(np.float64)
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


def beam_search(
    next_log_probs: LogProbs, limit: int, beam: int, alpha: float, min_length: int = 0, patience: float = 0.0
) -> list[tuple]:
    """[(tokens, score, log_prob)], best first: the finished hypotheses, or the living ones if there are none."""
    living, finished, num_finished = [((), 0.0)], [], 0
    for length in range(1, limit + 1):
        candidates = []
        barred = {PAD} if length > min_length else {PAD, EOS}
        for tokens, log_prob in living:
            step = next_log_probs(tokens)
            candidates += [
                ((*tokens, token), log_prob + step[token]) for token in range(len(step)) if token not in barred
            ]
        candidates.sort(key=lambda candidate: -candidate[1])  # stable: lower slot, then lower token id
        candidates = candidates[: 2 * beam if beam > 1 else 1]
        new = [(c, p / penalty(length, alpha), p) for c, p in candidates if c[-1] == EOS]
        finished += new
        num_finished += len(new)
        finished = sorted(finished, key=lambda hypothesis: -hypothesis[1])[:beam]
        living = [(c, p) for c, p in candidates if c[-1] != EOS][:beam]
        if not living:
            break
        reachable = living[0][1] / penalty(limit, alpha)
        if len(finished) == beam and finished[-1][1] >= reachable:
            break
        if patience and num_finished >= patience * beam:
            break
    return finished or [(tokens, log_prob / penalty(limit, alpha), log_prob) for tokens, log_prob in living]


def exhaustive_search(next_log_probs: LogProbs, vocab: int, limit: int, alpha: float) -> list[tuple]:
    """[(tokens, score, log_prob)] of every finished hypothesis there is, best first."""
    finished = []
    for length in range(limit):
        for words in itertools.product(range(2, vocab), repeat=length):
            tokens = (*words, EOS)
            log_prob = sum(next_log_probs(tokens[:i])[token] for i, token in enumerate(tokens))
            finished.append((tokens, log_prob / penalty(len(tokens), alpha), log_prob))
    return sorted(finished, key=lambda hypothesis: -hypothesis[1])


def greedy_search(next_log_probs: LogProbs, limit: int) -> tuple[int, ...]:
    """The most probable token each time, until the end symbol or the limit."""
    tokens = ()
    while len(tokens) < limit and tokens[-1:] != (EOS,):
        step = next_log_probs(tokens).copy()
        step[PAD] = -np.inf
        tokens = (*tokens, int(step.argmax()))
    return tokens

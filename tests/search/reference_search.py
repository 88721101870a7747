"""Reference implementations of beam search and exhaustive search in plain Python and NumPy, one sentence at a time.

They share no code with the package: hypotheses are tuples, Python sorts them, and log-probabilities are float64.
"""

import dataclasses
import itertools
from collections.abc import Callable

import numpy as np

PAD, EOS = 0, 1
_OF_NO_PHRASE = -1
LogProbs = Callable[[tuple[int, ...]], np.ndarray]  # of the next token, given the tokens so far
Phrases = tuple[tuple[int, ...], ...]


@dataclasses.dataclass(frozen=True)
class Options:
    """The options of a search; by default, none is used."""

    alpha: float = 0.6
    normalization: str = "gnmt"
    min_length: int = 0
    patience: float = 0.0
    ends_within_beam: bool = False
    no_repeat: int = 0
    excluded: Phrases = ()
    prefix: tuple[int, ...] = ()
    constraints: tuple[Phrases, ...] = ()  # the text must contain one phrase of each
    continuations: frozenset[int] = frozenset()
    num_groups: int = 1
    strength: float = 0.0
    coverage_penalty: float = 0.0
    coverage: Callable[[tuple[int, ...]], np.ndarray] | None = None  # attention to the source tokens, given a text


def penalty(length: int, alpha: float, normalization: str = "gnmt") -> float:
    return {"gnmt": ((5 + length) / 6) ** alpha, "average": length, "none": 1.0}[normalization]


def score_of(tokens: tuple[int, ...], log_prob: float, length: int, options: Options) -> float:
    score = log_prob / penalty(length, options.alpha, options.normalization)
    if options.coverage_penalty:
        assert options.coverage
        clipped = [min(max(attention, 1e-6), 1.0) for attention in options.coverage(tokens)]
        score += options.coverage_penalty * sum(np.log(clipped))
    return score


def log_softmax(logits: np.ndarray) -> np.ndarray:
    logits = logits.astype(np.float64)
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


def contains(tokens: tuple[int, ...], phrase: tuple[int, ...]) -> bool:
    return any(tokens[i : i + len(phrase)] == phrase for i in range(len(tokens) - len(phrase) + 1))


def may_follow(tokens: tuple[int, ...], token: int, options: Options) -> bool:
    """Whether a token is allowed next, without regard to the length that constraints need."""
    if len(tokens) < len(options.prefix) and options.prefix[len(tokens)] != PAD:
        return token == options.prefix[len(tokens)]
    longer = (*tokens, token)
    if token == PAD or (token == EOS and len(longer) <= options.min_length):
        return False
    if token == EOS and not all(meets(tokens, phrases, options.continuations) for phrases in options.constraints):
        return False
    if any(longer[-len(phrase) :] == phrase for phrase in options.excluded):
        return False
    return not (
        options.no_repeat and len(longer) >= options.no_repeat and contains(tokens, longer[-options.no_repeat :])
    )


def meets(tokens: tuple[int, ...], phrases: Phrases, continuations: frozenset[int]) -> bool:
    """Whether a text contains one of the phrases and does not continue its last word afterwards."""
    for phrase in phrases:
        for end in range(len(phrase), len(tokens) + 1):
            if tokens[end - len(phrase) : end] == phrase and not set(tokens[end : end + 1]) & continuations:
                return True
    return False


def missing(tokens: tuple[int, ...], options: Options) -> int:
    """Returns the smallest number of tokens that a text still needs for all constraints, if it continues at most one
    phrase.
    """
    continuations = options.continuations
    if_word_ends = [phrases for phrases in options.constraints if not meets(tokens, phrases, continuations)]
    # If the last word of a text continues, only phrases before it count.
    longer = (*tokens, _OF_NO_PHRASE)
    if_word_continues = [
        phrases for phrases in options.constraints if not meets(longer, phrases, continuations | {_OF_NO_PHRASE})
    ]
    least = []
    for unmet, is_joined in ((if_word_ends, False), (if_word_continues, True)):
        total = sum(min(map(len, phrases)) for phrases in unmet)
        saved = [
            min(map(len, phrases)) - len(phrase) + k
            for phrases in unmet
            for phrase in phrases
            for k in range(len(phrase))
            if (k == 0 or tokens[-k:] == phrase[:k]) and (phrase[k] in continuations) == is_joined
        ]
        least.append(total - max([0, *saved]))
    return min(least)


def beginnings(tokens: tuple[int, ...], options: Options) -> set[int]:
    """Returns the tokens that begin or continue a phrase of an unmet constraint, or the end symbol if all are met.

    These tokens are always candidates.
    """
    unmet = [phrases for phrases in options.constraints if not meets(tokens, phrases, options.continuations)]
    phrases = [phrase for alternatives in unmet for phrase in alternatives]
    tokens_of_phrases = {
        phrase[k] for phrase in phrases for k in range(len(phrase)) if k == 0 or tokens[-k:] == phrase[:k]
    }
    return tokens_of_phrases if unmet else {EOS}


def constrained(active: list[tuple], steps: list[np.ndarray], limit: int, beam: int, options: Options) -> list[tuple]:
    """Returns the candidates of a search with constraints in the order in which they are selected."""
    pool = []
    for (tokens, log_prob), step in zip(active, steps, strict=True):
        allowed = [token for token in range(len(step)) if may_follow(tokens, token, options)]
        best = sorted(allowed, key=(-step).__getitem__)[: 2 * beam]
        extra = [token for token in sorted(beginnings(tokens, options)) if token in allowed and token not in best]
        room, fitting = limit - len(tokens) - 1, []
        for token in best + extra:
            left = missing((*tokens, token), options)
            if left == 0 or left <= room - 1 or left < missing(tokens, options):
                fitting.append(token)
        pool += [((*tokens, token), log_prob + step[token]) for token in fitting or best + extra]
    pool.sort(key=lambda candidate: -candidate[1])
    banks: dict[int, int] = {}
    keyed = []
    for candidate in pool:
        bank = -missing(candidate[0], options)
        banks[bank] = banks.get(bank, 0) + 1
        keyed.append((banks[bank], -bank, candidate))
    return [candidate for *_, candidate in sorted(keyed, key=lambda entry: entry[:2])]


def beam_search(
    next_log_probs: LogProbs,
    limit: int,
    beam: int,
    alpha: float = 0.6,
    min_length: int = 0,
    patience: float = 0.0,
    options: Options | None = None,
) -> list[tuple]:
    """Returns [(tokens, score, log_prob)], best first: finished hypotheses, or active ones that meet constraints."""
    options = options or Options(alpha=alpha, min_length=min_length, patience=patience)
    size = beam // options.num_groups
    groups = [_Group(limit, size, options) for _ in range(options.num_groups)]
    for length in range(1, limit + 1):
        token_counts: dict[int, int] = {}
        for group in groups:
            if not group.done:
                group.step(next_log_probs, length, token_counts)
                for tokens, _ in group.active:
                    token_counts[tokens[-1]] = token_counts.get(tokens[-1], 0) + 1
    finished = [hypothesis for group in groups for hypothesis in group.finished]
    if not finished:
        active = [hypothesis for group in groups for hypothesis in group.active]
        finished = [
            (tokens, score_of(tokens, p, limit, options), p)
            for tokens, p in active
            if all(meets(tokens, phrases, options.continuations) for phrases in options.constraints)
        ]
    if options.num_groups > 1 or options.coverage_penalty:
        finished.sort(key=lambda hypothesis: -hypothesis[1])
    return finished


class _Group:
    """One beam; a search without diversity has one group."""

    def __init__(self, limit: int, beam: int, options: Options):
        self.limit, self.beam, self.options = limit, beam, options
        self.active: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
        self.finished: list[tuple] = []
        self.num_finished, self.done = 0, False

    def step(self, next_log_probs: LogProbs, length: int, token_counts: dict[int, int]) -> None:
        candidates = self.candidates(next_log_probs, token_counts)[: 2 * self.beam if self.beam > 1 else 1]
        new = [
            (c, score_of(c, p, length, self.options), p)
            for c, p in candidates[: self.beam if self.options.ends_within_beam else None]
            if c[-1] == EOS
        ]
        self.finished = sorted(self.finished + new, key=lambda hypothesis: -hypothesis[1])[: self.beam]
        self.num_finished += len(new)
        self.active = [(c, p) for c, p in candidates if c[-1] != EOS][: self.beam]
        if self.options.constraints:
            self.active.sort(key=lambda candidate: -candidate[1])
        reachable = max((p for _, p in self.active), default=-np.inf)
        reachable /= penalty(self.limit, self.options.alpha, self.options.normalization)
        self.done = not self.active or (len(self.finished) == self.beam and self.finished[-1][1] >= reachable)
        self.done |= bool(self.options.patience) and self.num_finished >= self.options.patience * self.beam

    def candidates(self, next_log_probs: LogProbs, token_counts: dict[int, int]) -> list[tuple]:
        steps = [next_log_probs(tokens) for tokens, _ in self.active]
        if self.options.constraints:
            return constrained(self.active, steps, self.limit, self.beam, self.options)
        ranked = [
            (
                log_prob + step[token] - self.options.strength * token_counts.get(token, 0),
                (*tokens, token),
                log_prob + step[token],
            )
            for (tokens, log_prob), step in zip(self.active, steps, strict=True)
            for token in range(len(step))
            if may_follow(tokens, token, self.options)
        ]
        ranked.sort(key=lambda candidate: -candidate[0])  # stable: lower slot, then lower token id
        return [(tokens, log_prob) for _, tokens, log_prob in ranked]


def exhaustive_search(
    next_log_probs: LogProbs, vocab: int, limit: int, alpha: float = 0.6, options: Options | None = None
) -> list[tuple]:
    """Returns [(tokens, score, log_prob)] of every possible finished hypothesis, best first."""
    options = options or Options(alpha=alpha)
    finished = []
    for length in range(limit):
        for words in itertools.product(range(2, vocab), repeat=length):
            tokens = (*words, EOS)
            if all(may_follow(tokens[:i], token, options) for i, token in enumerate(tokens)):
                log_prob = sum(next_log_probs(tokens[:i])[token] for i, token in enumerate(tokens))
                finished.append((tokens, score_of(tokens, log_prob, len(tokens), options), log_prob))
    return sorted(finished, key=lambda hypothesis: -hypothesis[1])

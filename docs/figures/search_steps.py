"""A beam search in steps over a table of a few words, computed by the search that translates."""

import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from drawing import Drawing

from t2t_keras.config import DecodeConfig
from t2t_keras.models.contract import Cache
from t2t_keras.search import beam_search as searching
from t2t_keras.search.goal import Goal
from t2t_keras.symbols import EOS_ID

_WORDS = ["", ".", "a", "the", "dog", "child", "runs", "sleeps"]  # by their ids; 0 begins a sentence, 1 ends it
_NEXT = {  # probabilities of the next word
    "": {"a": 0.6, "the": 0.4},
    "a": {"dog": 0.4, "child": 0.35, "runs": 0.25},
    "the": {"dog": 0.9, "child": 0.1},
    "dog": {"runs": 0.55, ".": 0.25, "sleeps": 0.2},
    "child": {"sleeps": 0.7, ".": 0.2, "runs": 0.1},
    "runs": {".": 0.8, "sleeps": 0.2},
    "sleeps": {".": 0.9, "runs": 0.1},
}
_BEAM, _LIMIT = 2, 6
_WIDTH, _HEIGHT, _ACROSS, _DOWN = 176, 46, 201, 66
_TOP = 66

Text = tuple[int, ...]


class Candidate(NamedTuple):
    """A hypothesis that a step considered.

    Attributes:
        text: its ids.
        log_prob: the sum of its words' log-probabilities.
        score: its log-probability divided by the length penalty.
        fate: "active", "ends", or "dropped".
    """

    text: Text
    log_prob: float
    score: float
    fate: str


def searched() -> tuple[list[list[Candidate]], searching.SearchResult]:
    """Returns the candidates of each step of the search, and its result."""
    table = np.log(np.array([[_NEXT.get(a, {}).get(b, 1e-30) for b in _WORDS] for a in _WORDS], np.float32))
    active: list[list[Text]] = []

    def step(token_ids: tf.Tensor, cache: Cache) -> tuple[tf.Tensor, Cache]:
        texts = tf.concat([cache.per_hypothesis, tf.reshape(token_ids, [1, _BEAM, 1])], axis=2)
        active.append([tuple(text[1:]) for text in texts[0].numpy().tolist()])
        return tf.gather(table, token_ids), cache._replace(position=cache.position + 1, per_hypothesis=texts)

    nothing = tf.zeros([1, _BEAM, 0])
    cache = Cache(tf.constant(0), tf.cast(nothing, tf.int32), nothing, nothing, nothing)
    goal = Goal(DecodeConfig(beam_size=_BEAM, length_penalty=0.6), max_lengths=[_LIMIT])
    result = searching.beam_search(step, cache, goal)
    steps = []
    for number, texts in enumerate(active):
        considered = [(*text, word) for text in dict.fromkeys(texts) for word in _after(text)]
        considered = sorted(considered, key=_log_prob, reverse=True)[: 2 * _BEAM]
        remaining = active[number + 1] if number + 1 < len(active) else []
        steps.append([_candidate(text, text in remaining, goal) for text in considered])
    return steps, result


def _after(text: Text) -> list[int]:
    return [_WORDS.index(word) for word in _NEXT[_WORDS[text[-1]] if text else ""]]


def _log_prob(text: Text) -> float:
    words = ["", *(_WORDS[token] for token in text)]
    return sum(math.log(_NEXT[before][word]) for before, word in zip(words, words[1:], strict=False))


def _candidate(text: Text, is_active: bool, goal: Goal) -> Candidate:
    fate = "ends" if text[-1] == EOS_ID else "active" if is_active else "dropped"
    return Candidate(text, _log_prob(text), float(goal.score(tf.constant(_log_prob(text)), len(text))), fate)


def search_steps() -> str:
    """Returns a figure of the candidates of each step, the surviving ones, and the reason why the search stops."""
    steps, result = searched()
    drawing = Drawing(820, 450, "A beam search with two hypotheses: the candidates of each of its four steps")
    places: dict[Text, tuple[float, float]] = {(): (10, _TOP + _DOWN / 2)}
    drawing.text(
        20, 22, "Blue: active. Green: finished. Grey: dropped. log p: sum of log-probabilities.", "left", "small"
    )
    for number, candidates in enumerate(steps):
        left = 20 + number * _ACROSS
        drawing.text(left + _WIDTH / 2, 48, f"step {number + 1}")
        for rank, candidate in enumerate(candidates):
            top = _TOP + rank * _DOWN
            x, y = places[candidate.text[:-1]]
            if number:
                drawing.line((x, y), (left, top + _HEIGHT / 2))
            places[candidate.text] = left + _WIDTH, top + _HEIGHT / 2
            _draw(drawing, left, top, candidate)
    _explain(drawing, steps, result)
    return drawing.svg()


def _draw(drawing: Drawing, left: float, top: float, candidate: Candidate) -> None:
    kind = {"active": "network", "ends": "output", "dropped": "dropped"}[candidate.fate]
    numbers = f"log p {_number(candidate.log_prob)}"
    if candidate.fate == "ends":
        numbers += f", score {_number(candidate.score)}"
    drawing.box(left, top, _WIDTH, _HEIGHT, _words(candidate.text), numbers, kind=kind)


def _explain(drawing: Drawing, steps: list[list[Candidate]], result: searching.SearchResult) -> None:
    """Draws the finished hypotheses, and the best score that an active one can still reach."""
    best = max((each for each in steps[-1] if each.fate != "ends"), key=lambda each: each.log_prob)
    bound = best.log_prob / ((5 + _LIMIT) / 6) ** 0.6
    scores = result.scores[0].numpy().tolist()
    texts = [_words(text[:length]) for text, length in zip(result.token_ids[0].numpy(), result.lengths[0], strict=True)]
    lines = [
        f"Finished: “{texts[0]}” {_number(scores[0])}, “{texts[1]}” {_number(scores[1])}.",
        f"“{_words(best.text)}” could reach {_number(bound)} at most, at the limit of {_LIMIT} tokens. That is",
        "less than both, so the search stops here. The best word at each step (greedy) would have led to the second.",
    ]
    drawing.box(20, 350, 779, 84, *lines, kind="output", link="t2t_keras/search/beam_search.py#beam_search")


def _words(text: Text) -> str:
    return " ".join(_WORDS[token] for token in text)


def _number(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")

"""One global batch on 1, 2 and 8 replicas: the same pairs, distributed as the trainer does."""

import numpy as np
from drawing import Drawing

from t2t_keras.data.batching import plan_in_length_order
from t2t_keras.data.pipeline import shares

_LENGTHS = np.array([5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 10, 11])  # tokens of the batch's sources, and of its targets
_REPLICAS = 1, 2, 8
_TOKEN, _ROW = 7, 15  # width of a token and height of a row, in pixels
_LEFT, _SHARE = 20, 99  # left side of the first share, and distance of shares


class _Pairs:
    """Pairs of text; the ids of a pair are its number, counted from 1."""

    source_lengths = target_lengths = _LENGTHS

    def source_ids(self, rows: np.ndarray, length: int | None = None) -> np.ndarray:
        return np.where(np.arange(length or max(_LENGTHS)) < _LENGTHS[rows][:, None], rows[:, None] + 1, 0)

    target_ids = source_ids


def dealt(num_replicas: int) -> list[np.ndarray]:
    """Returns the target ids of each replica's share, [rows, length]."""
    plan = plan_in_length_order(_LENGTHS, _LENGTHS, tokens_per_batch=len(_LENGTHS) * max(_LENGTHS))
    return [share["target"] for share in shares(_Pairs(), plan, 0, num_replicas, range(num_replicas))]


def global_batch() -> str:
    """Returns the pairs of one batch on each number of replicas, with their tokens and the computation."""
    drawing = Drawing(820, 592, "13 pairs on 1, 2 and 8 replicas, always with 106 target tokens in all")
    top = 34
    for num_replicas in _REPLICAS:
        top = _draw(drawing, num_replicas, top)
    link = "t2t_keras/training/step.py#TrainingStep"
    words = (
        "n tokens on each replica, N on all of them. Each divides the sum of its token losses by N;",
        "losses and gradients are then added up. So the update is the same on 1, 2 and 8 replicas.",
    )
    drawing.box(_LEFT, top - 22, 8 * _SHARE - 12, 50, *words, kind="output", link=link)
    return drawing.svg()


def _draw(drawing: Drawing, num_replicas: int, top: int) -> int:
    """Draws the shares of a number of replicas; returns the top of the next ones."""
    batch = dealt(num_replicas)
    rows = len(batch[0])
    total = sum(np.count_nonzero(share) for share in batch)
    name = "1 replica" if num_replicas == 1 else f"{num_replicas} replicas"
    drawing.text(_LEFT, top - 14, f"{name}, N = {total}", "left")
    for replica, share in enumerate(batch):
        left = _LEFT + replica * _SHARE
        drawing.frame(left, top, _SHARE - 12, rows * _ROW + 26)
        for row, ids in enumerate(share):
            _bar(drawing, left + 5, top + 5 + row * _ROW, ids)
        drawing.text(left + (_SHARE - 12) / 2, top + rows * _ROW + 14, f"n = {np.count_nonzero(share)}", "small")
    return top + rows * _ROW + 64


def _bar(drawing: Drawing, left: float, top: float, ids: np.ndarray) -> None:
    """Draws a pair's target, or an empty row, with the padding after it."""
    tokens = int(np.count_nonzero(ids))
    drawing.bar(left, top, len(ids) * _TOKEN, _ROW - 3, "dropped")
    if tokens:
        drawing.bar(left, top, tokens * _TOKEN, _ROW - 3, "network")
        drawing.text(left + 11, top + (_ROW - 3) / 2, str(ids[0]), "small")
    else:
        drawing.text(left + len(ids) * _TOKEN / 2, top + (_ROW - 3) / 2, "empty", "small", "quiet")

"""What the baselines have in common in NumPy, and how those with attention are compared with it."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.baselines.untrained import SOURCE, TARGET
from tests.layers.numpy_oracle import numbers


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def embedded(embedding: Any, ids: list[int]) -> np.ndarray:
    """[length] --> [length, d_model]."""
    table = numbers(embedding.table)
    return table[ids] * np.sqrt(table.shape[1]) * (np.array(ids) != 0)[:, None]


def assert_equals_numpy(model: Any, logits_in_numpy: Callable, targets: np.ndarray = TARGET) -> None:
    """In a batch with padding too; so neither padding nor other sentences matter."""
    batch = {"source": SOURCE, "target": targets}
    logits, attentions = model.logits_and_attention(batch)
    attention = attentions.cross
    assert attention.shape[2:] == (1, targets.shape[1], 5)
    np.testing.assert_allclose(model(batch), logits, atol=1e-5)
    for row in range(3):
        source, target = (ids[row][ids[row] != 0].tolist() for ids in (SOURCE, targets))
        expected, weights = logits_in_numpy(model, source, target)
        np.testing.assert_allclose(logits[row, : len(target)], expected, rtol=1e-4, atol=2e-5)
        found = attention[row, :, 0, : len(target)]
        weights = weights.reshape(-1, len(target), len(source))  # of one layer or several
        np.testing.assert_allclose(found[..., : len(source)], weights, rtol=1e-4, atol=1e-6)
        assert not np.any(found[..., len(source) :] > 1e-7)

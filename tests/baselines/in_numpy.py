"""NumPy functions that the baselines share, and the comparison of models that have attention."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.baselines.untrained import SOURCE, TARGET
from tests.layers.numpy_oracle import numbers


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def embedded(embedding: Any, ids: list[int]) -> np.ndarray:
    """Shapes: [length] --> [length, d_model]."""
    table = numbers(embedding.table)
    return table[ids] * np.sqrt(table.shape[1]) * (np.array(ids) != 0)[:, None]


def assert_equals_numpy(model: Any, logits_in_numpy: Callable, targets: np.ndarray = TARGET) -> None:
    """Compares logits and attention; the batch has padding, which the NumPy functions do not see."""
    batch = {"source": SOURCE, "target": targets}
    logits, attentions = model.logits_and_attention(batch)
    attention = attentions.cross
    assert attention.shape[2:] == (1, targets.shape[1], 5)
    np.testing.assert_allclose(model(batch), logits, atol=1e-5)
    for row in range(3):
        source, target = (ids[row][ids[row] != 0].tolist() for ids in (SOURCE, targets))
        expected, weights = logits_in_numpy(model, source, target)
        np.testing.assert_allclose(logits[row, : len(target)], expected, rtol=1e-4, atol=2e-5)
        actual = attention[row, :, 0, : len(target)]
        weights = weights.reshape(-1, len(target), len(source))  # [layers or 1, target_len, source_len]
        np.testing.assert_allclose(actual[..., : len(source)], weights, rtol=1e-4, atol=1e-6)
        assert not np.any(actual[..., len(source) :] > 1e-7)

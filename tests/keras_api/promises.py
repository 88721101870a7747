"""The rows of the table of Keras features in docs/python.md. Each test names the row that it proves."""

from collections.abc import Callable
from typing import TypeVar

import keras
import pytest

BACKENDS = {"tensorflow": "TensorFlow", "jax": "JAX", "torch": "PyTorch"}
YES = "yes"
# The cells of each row by backend.
ROWS: dict[str, dict[str, str]] = {}

_Test = TypeVar("_Test", bound=Callable)


def promise(row: str, **cells_by_backend: str) -> Callable[[_Test], _Test]:
    """Marks a test as the proof of a row.

    Args:
        row: the row's first cell.
        cells_by_backend: the cell of each backend on which the feature does not work or is not tested, instead of
            "yes". The test is skipped there.
    """
    cells = {backend: cells_by_backend.get(backend, YES) for backend in BACKENDS}
    assert ROWS.setdefault(row, cells) == cells, f"two tests of {row} differ"
    cell = cells[keras.backend.backend()]

    def mark(test: _Test) -> _Test:
        return pytest.mark.skipif(cell != YES, reason=f"{row}: {cell}")(test)

    return mark

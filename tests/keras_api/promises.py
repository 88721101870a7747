"""The rows of the table of Keras features in docs/python.md; each test names the row that it backs."""

from collections.abc import Callable
from typing import TypeVar

import keras
import pytest

BACKENDS = {"tensorflow": "TensorFlow", "jax": "JAX", "torch": "PyTorch"}
YES = "yes"
# The cells of each row, by backend.
ROWS: dict[str, dict[str, str]] = {}

_Test = TypeVar("_Test", bound=Callable)


def promise(row: str, **others: str) -> Callable[[_Test], _Test]:
    """Marks a test as the proof of a row.

    Args:
        row: the row's first cell.
        others: by backend, the cell that stands in place of "yes" where the feature does not work or is not tested.
            The test is skipped there.
    """
    cells = {backend: others.get(backend, YES) for backend in BACKENDS}
    assert ROWS.setdefault(row, cells) == cells, f"two tests of {row} differ"
    cell = cells[keras.backend.backend()]

    def mark(test: _Test) -> _Test:
        return pytest.mark.skipif(cell != YES, reason=f"{row}: {cell}")(test)

    return mark

"""Reuse of tensors that depend only on weights, and the dtype of products."""

from collections.abc import Callable
from typing import Any

from t2t_keras.collector import Collector
from t2t_keras.tensor import Tensor


class ReadyWeights(Collector):
    """Caches tensors that depend only on weights, so that many passes share them; see `made_ready`.

    A subclass decides where they are stored.
    """

    def keep(self, name: str, make: Callable[[], Tensor]) -> Any:
        """Returns a tensor or variable with the value of `make()`; calls with the same name have the same value."""
        raise NotImplementedError


def made_ready(name: str, make: Callable[[], Tensor]) -> Any:
    """Returns `make()`, which must depend only on weights, or the copy in the innermost `ReadyWeights`."""
    store = ReadyWeights.innermost()
    return make() if store is None else store.keep(name, make)


class ProductDtype(Collector):
    """Makes `kernels.linear` compute its products in this dtype instead of its inputs' dtype."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype

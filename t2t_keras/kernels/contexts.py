"""Contexts of kernels and layers: a cache of tensors that depend only on weights, and the dtype of products."""

from collections.abc import Callable
from typing import Any

from t2t_keras.collector import Collector
from t2t_keras.tensor import Tensor


class WeightCache(Collector):
    """Caches tensors that depend only on weights, so that many passes share them; see `compute_once`.

    A subclass decides where they are stored.
    """

    def get(self, name: str, compute: Callable[[], Tensor]) -> Any:
        """Returns a tensor or variable with the value of `compute()`, the same for all calls with the same name."""
        raise NotImplementedError


def compute_once(name: str, compute: Callable[[], Tensor]) -> Any:
    """Returns `compute()`, which must depend only on weights, or the copy in the innermost `WeightCache`."""
    cache = WeightCache.innermost()
    return compute() if cache is None else cache.get(name, compute)


class ProductDtype(Collector):
    """Makes `kernels.linear` compute its products in this dtype instead of its inputs' dtype."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype

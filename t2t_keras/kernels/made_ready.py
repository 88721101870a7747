"""Tensors that are made of weights only, made once for many passes."""

from collections.abc import Callable
from typing import Any

from t2t_keras.collector import Collector
from t2t_keras.tensor import Tensor


class ReadyWeights(Collector):
    """Keeps tensors that are made of weights only, so that they are made once. A subclass decides where.

    See `made_ready`.
    """

    def kept(self, name: str, make: Callable[[], Tensor]) -> Any:
        """A tensor or variable with the value of `make()`, a function of weights; a name has one value."""
        raise NotImplementedError


def made_ready(name: str, make: Callable[[], Tensor]) -> Any:
    """Returns `make()`, a tensor made of weights only, or the one that the innermost `ReadyWeights` keeps."""
    keeper = ReadyWeights.innermost()
    return make() if keeper is None else keeper.kept(name, make)


class ProductDtype(Collector):
    """Has `kernels.linear` compute its products in another dtype than its inputs'."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype

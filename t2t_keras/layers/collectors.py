"""What layers hand over beside their outputs, to whoever collects it around a pass of a model."""

import contextvars
from collections.abc import Callable
from typing import Any, ClassVar, Self

from keras import ops

from t2t_keras.tensor import Tensor


class Collector:
    """Receives what layers hand over while they are called in its `with` block; the innermost of its kind receives it.

    It is found by a context variable, so that no layer passes on what it does not use itself. It belongs to one pass:
    every thread, as replicas are, has its own, and no layer keeps a tensor of a graph that is traced.
    """

    _innermost: ClassVar[contextvars.ContextVar[Any]]

    def __init_subclass__(cls) -> None:
        if Collector in cls.__bases__:  # a kind; its own subclasses are of that kind
            cls._innermost = contextvars.ContextVar(cls.__name__, default=None)

    def __enter__(self) -> Self:
        self._token = self._innermost.set(self)
        return self

    def __exit__(self, *error: Any) -> None:
        self._innermost.reset(self._token)

    @classmethod
    def innermost(cls) -> Self | None:
        """The collector of this kind around the present call, or None."""
        return cls._innermost.get()


class AuxiliaryLosses(Collector):
    """Collects the balance losses of `MixtureOfExperts` over some sentences; other layers have none.

    Args:
        token_mask: bool [batch, length], True = token; the losses count no others. None means tokens only.

    Attributes:
        losses: of each layer in turn, float32 [batch].
    """

    def __init__(self, token_mask: Tensor | None = None) -> None:
        self.token_mask = token_mask
        self.losses: list[Tensor] = []

    def total(self) -> Tensor:
        """The sum of the layers' losses, float32 [batch]; the scalar 0 without any."""
        return sum(self.losses) if self.losses else ops.zeros((), "float32")


class AttentionWeights(Collector):
    """Collects the weights of each `MultiHeadAttention` before dropout.

    Within a window they are those to all positions, 0 outside of it, and cost as much.

    Attributes:
        weights: of each layer in turn, float [batch, heads, query_len, key_len].
    """

    def __init__(self) -> None:
        self.weights: list[Tensor] = []


class ReadyWeights(Collector):
    """Keeps what is made of weights alone, so that it is made once and not in each pass; a subclass says where.

    See `made_ready`.
    """

    def kept(self, name: str, make: Callable[[], Tensor]) -> Any:
        """A tensor or variable with the value of `make()`, a function of weights; a name has one value."""
        raise NotImplementedError


def made_ready(name: str, make: Callable[[], Tensor]) -> Any:
    """make(), a tensor made of weights alone, or what the innermost `ReadyWeights` keeps of it."""
    keeper = ReadyWeights.innermost()
    return make() if keeper is None else keeper.kept(name, make)

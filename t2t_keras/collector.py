"""Receivers of what is computed beside the outputs of a pass of a model."""

import contextvars
from typing import Any, ClassVar, Self


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

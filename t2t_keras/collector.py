"""Contexts that layers look up during a call, to hand over side results or to read settings."""

import contextvars
from typing import Any, ClassVar, Self


class Collector:
    """A context manager that layers look up when they are called inside its `with` block.

    Layers hand over side results to a collector, or read settings from it. Each direct subclass is one kind; if blocks
    of the same kind are nested, layers find the innermost one.

    Collectors are found through a context variable, so that layers need not pass on arguments that they do not use. A
    collector belongs to one forward pass: each thread, and so each replica, finds only its own, and no layer holds on
    to tensors of a traced graph.
    """

    _innermost: ClassVar[contextvars.ContextVar[Any]]

    def __init_subclass__(cls) -> None:
        if Collector in cls.__bases__:  # a new kind; subclasses of it share its variable
            cls._innermost = contextvars.ContextVar(cls.__name__, default=None)

    def __enter__(self) -> Self:
        self._token = self._innermost.set(self)
        return self

    def __exit__(self, *error: Any) -> None:
        self._innermost.reset(self._token)

    @classmethod
    def innermost(cls) -> Self | None:
        """The innermost collector of this kind around the current call, or None."""
        return cls._innermost.get()

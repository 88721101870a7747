"""What runs the searches of a model: a graph of TensorFlow, or something in its place."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from t2t_keras.config import DecodeConfig
from t2t_keras.search.beam_search import SearchResult

InGraph = Callable[[], SearchResult]


class Plain(NamedTuple):
    """A search for nothing but lengths: no rules, prefixes or the like.

    Attributes:
        settings: of the search.
        num_best: hypotheses that are returned; None means all.
        scored: whether scores are wanted; see `Goal`.
    """

    settings: DecodeConfig
    num_best: int | None
    scored: bool


class Engine(Protocol):
    """What runs searches."""

    def search(self, in_graph: InGraph) -> SearchResult:
        """Runs a search.

        Args:
            in_graph: runs the traced one.
        """
        ...

    def plain_search(self, source_ids: Any, plain: Plain, in_graph: InGraph) -> SearchResult:
        """Runs a plain search, perhaps in a way of its own that finds the same.

        Args:
            source_ids: int32 [batch, source_len].
            plain: what is searched for.
            in_graph: runs the traced one.
        """
        ...


class TensorFlowEngine:
    """Runs the traced searches."""

    def search(self, in_graph: InGraph) -> SearchResult:
        """Runs it."""
        return in_graph()

    def plain_search(self, source_ids: Any, plain: Plain, in_graph: InGraph) -> SearchResult:
        """Runs the traced one."""
        return in_graph()

"""Engines that run a model's searches: the traced TensorFlow graph, or a replacement."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from t2t_keras.config import DecodeConfig
from t2t_keras.search.beam_search import SearchResult

InGraph = Callable[[], SearchResult]


class Plain(NamedTuple):
    """A search limited by lengths only: without rules, prefixes, constraints, groups, coverage or sampling.

    Attributes:
        settings: the decoding settings.
        num_best: number of hypotheses to return; None means all.
        scored: whether scores are needed; see `Goal`.
    """

    settings: DecodeConfig
    num_best: int | None
    scored: bool


class Engine(Protocol):
    """Runs searches; `in_graph` runs the traced one."""

    def search(self, in_graph: InGraph) -> SearchResult:
        """Runs a search that may have options."""
        ...

    def plain_search(self, source_ids: Any, plain: Plain, in_graph: InGraph) -> SearchResult:
        """Runs a plain search of source_ids, int32 [batch, source_len], in the graph or in an equivalent way."""
        ...


class TensorFlowEngine:
    """Runs every search in the graph."""

    def search(self, in_graph: InGraph) -> SearchResult:
        return in_graph()

    def plain_search(self, source_ids: Any, plain: Plain, in_graph: InGraph) -> SearchResult:
        return in_graph()

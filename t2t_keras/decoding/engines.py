"""What runs the searches of a model: a graph of TensorFlow, or something in its place."""

from collections.abc import Callable
from typing import Protocol

import numpy as np

from t2t_keras.decoding.beam_search import SearchResult
from t2t_keras.decoding.goal import Goal

InGraph = Callable[[], SearchResult]


class Engine(Protocol):
    """What runs searches."""

    def search(self, in_graph: InGraph) -> SearchResult:
        """Runs a search.

        Args:
            in_graph: runs the traced one.
        """
        ...

    def plain_search(self, source_ids: np.ndarray, goal: Goal, in_graph: InGraph) -> SearchResult:
        """Runs a search for nothing but lengths, perhaps in a way of its own that finds the same.

        Args:
            source_ids: int32 [batch, source_len].
            goal: without rules, prefixes and the like; its lengths are arrays.
            in_graph: runs the traced one.
        """
        ...


class TensorFlowEngine:
    """Runs the traced searches."""

    def search(self, in_graph: InGraph) -> SearchResult:
        """Runs it."""
        return in_graph()

    def plain_search(self, source_ids: np.ndarray, goal: Goal, in_graph: InGraph) -> SearchResult:
        """Runs the traced one."""
        return in_graph()

"""Engines, which run a translator's searches in a traced TensorFlow graph or in a replacement for it."""

from collections.abc import Sequence
from typing import Any, Protocol

from t2t_keras.config import DecodeConfig
from t2t_keras.models.contract import StepModel
from t2t_keras.search.beam_search import SearchResult
from t2t_keras.search.restrictions.form import Form
from t2t_keras.search.searcher import OPTIONS, Searcher


class SearchFunction(Protocol):
    """Searches for the outputs of a batch of sentences, with the arguments and results of `Searcher.__call__`."""

    def __call__(
        self, source_ids: Any, only_best: bool = False, scored: bool = True, **options: Any
    ) -> SearchResult: ...


class Engine(Protocol):
    """Makes the search function of a model.

    Attributes:
        options: the options of `searcher.OPTIONS` that the engine supports.
    """

    @property
    def options(self) -> frozenset[str]: ...

    def searcher(
        self,
        model: StepModel,
        config: DecodeConfig,
        excluded: Sequence[Sequence[int]] = (),
        form: Form | None = None,
        continuations: Sequence[int] = (),
    ) -> SearchFunction:
        """Returns the search function for these settings; see `Searcher` for the arguments and errors."""


class TensorFlowEngine:
    """Runs every search in a TensorFlow graph."""

    options = frozenset(OPTIONS)
    searcher = Searcher

"""What runs a translator's searches: the traced TensorFlow graph, or a replacement."""

from collections.abc import Sequence
from typing import Any, Protocol

from t2t_keras.config import DecodeConfig
from t2t_keras.models.contract import StepModel
from t2t_keras.search.beam_search import SearchResult
from t2t_keras.search.restrictions.form import Form
from t2t_keras.search.searches import OPTIONS, Searches


class SearchFunction(Protocol):
    """Searches for a batch of sentences; arguments and result are those of `Searches`."""

    def __call__(
        self, source_ids: Any, only_best: bool = False, scored: bool = True, **options: Any
    ) -> SearchResult: ...


class Engine(Protocol):
    """Makes the searches of a model.

    Attributes:
        options: what a sentence may ask for, of `searches.OPTIONS`.
    """

    @property
    def options(self) -> frozenset[str]: ...

    def searches(
        self,
        model: StepModel,
        config: DecodeConfig,
        excluded: Sequence[Sequence[int]] = (),
        form: Form | None = None,
        continuations: Sequence[int] = (),
    ) -> SearchFunction:
        """The searches with these settings; see `Searches` for the arguments, and for what is refused."""


class TensorFlowEngine:
    """Runs every search in the graph."""

    options = frozenset(OPTIONS)
    searches = Searches

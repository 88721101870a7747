"""Searches of models whose steps TensorFlow Lite computes."""

import contextlib
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from t2t_keras.decoding.beam_search import SearchResult
from t2t_keras.decoding.engines import InGraph
from t2t_keras.decoding.first_entries import FirstEntries
from t2t_keras.decoding.goal import Goal
from t2t_keras.decoding.lite.beam_search import BeamSearch, Limits
from t2t_keras.decoding.lite.greedy import greedy_search
from t2t_keras.decoding.lite.model import LiteModel
from t2t_keras.decoding.lite.sessions import Kind
from t2t_keras.decoding.scoring import length_penalty
from t2t_keras.symbols import PAD_ID


class LiteEngine:
    """Runs searches beside the graph where that is faster.

    Args:
        models: one, or the members of an ensemble.
    """

    def __init__(self, models: Sequence[LiteModel]) -> None:
        self._models = tuple(models)
        self._penalties: dict[tuple[float, str], FirstEntries] = {}

    def search(self, in_graph: InGraph) -> SearchResult:
        """Runs the traced search; what a failed one leaves is let go of."""
        with contextlib.ExitStack() as stack:
            for model in self._models:
                stack.enter_context(model.searching())
            return in_graph()

    def plain_search(self, source_ids: np.ndarray, goal: Goal, in_graph: InGraph) -> SearchResult:
        """Runs a loop in NumPy; the searches of ensembles are traced ones."""
        if len(self._models) > 1:
            return self.search(in_graph)
        sessions, settings = self._models[0].sessions, goal.settings
        kind = Kind(settings.beam_size, log_totals=goal.scored or settings.beam_size > 1)
        sessions.convert(kind)
        tables, limits = sessions.tables, self._limits(goal)
        inputs = tables.source[source_ids] + tables.source_positions(source_ids.shape[1])
        session = sessions.start(kind, inputs, source_ids == PAD_ID)
        given = session, tables.target, tables.target_positions(len(limits.penalties) - 1), limits
        found = BeamSearch(*given).run() if settings.beam_size > 1 else greedy_search(*given, goal.scored)
        sessions.let_go(kind, session)
        return SearchResult(*map(tf.constant, found))

    def _limits(self, goal: Goal) -> Limits:
        settings, steps = goal.settings, max(goal.max_lengths.max(initial=0), 0)
        name = (settings.length_penalty, settings.length_normalization)
        if name not in self._penalties:
            self._penalties[name] = FirstEntries(lambda count: length_penalty(np.arange(count), *name).numpy())
        minima = np.full_like(goal.max_lengths, settings.min_length)
        return Limits(goal.max_lengths, minima, self._penalties[name](steps + 1), settings.patience, goal.num_returned)

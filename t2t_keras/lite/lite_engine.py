"""The engine for models whose steps TensorFlow Lite computes."""

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_keras.config import DecodeConfig
from t2t_keras.lite.first_entries import FirstEntries
from t2t_keras.lite.lite_model import LiteModel
from t2t_keras.lite.numpy_beam_search import BeamSearch, Limits
from t2t_keras.lite.numpy_greedy import greedy_search
from t2t_keras.lite.sessions import Kind
from t2t_keras.search.beam_search import SearchResult
from t2t_keras.search.engines import InGraph, Plain
from t2t_keras.search.scoring import length_penalty
from t2t_keras.search.searches import output_limits
from t2t_keras.symbols import PAD_ID


class LiteEngine:
    """Runs searches outside the graph where that is faster, of one model or of the members of an ensemble."""

    def __init__(self, models: Sequence[LiteModel]) -> None:
        self._models = tuple(models)
        self._lengths: dict[DecodeConfig, tuple[FirstEntries, FirstEntries]] = {}

    def search(self, in_graph: InGraph) -> SearchResult:
        """Runs the traced search, and drops the sessions of failed ones."""
        with contextlib.ExitStack() as stack:
            for model in self._models:
                stack.enter_context(model.searching())
            return in_graph()

    def plain_search(self, source_ids: Any, plain: Plain, in_graph: InGraph) -> SearchResult:
        """Runs a loop in NumPy, or for ensembles the traced search."""
        if len(self._models) > 1:
            return self.search(in_graph)
        sessions, settings = self._models[0].sessions, plain.settings
        kind = Kind(settings.beam_size, log_totals=plain.scored or settings.beam_size > 1)
        sessions.convert(kind)
        source_ids = np.asarray(source_ids)
        tables, limits = sessions.tables, self._limits(source_ids, plain)
        inputs = tables.source[source_ids] + tables.source_positions(source_ids.shape[1])
        session = sessions.start(kind, inputs, source_ids == PAD_ID)
        arguments = session, tables.target, tables.target_positions(len(limits.penalties) - 1), limits
        arrays = BeamSearch(*arguments).run() if settings.beam_size > 1 else greedy_search(*arguments, plain.scored)
        sessions.let_go(kind, session)
        return SearchResult(*map(tf.constant, arrays))

    def _limits(self, source_ids: np.ndarray, plain: Plain) -> Limits:
        settings = plain.settings
        max_lengths, penalties = self._tables(settings)
        longest = max_lengths(source_ids.shape[1] + 1)[np.count_nonzero(source_ids != PAD_ID, axis=1)]
        return Limits(
            max_lengths=longest,
            min_lengths=np.full_like(longest, settings.min_length),
            penalties=penalties(max(longest.max(initial=0), 0) + 1),
            ends_within_beam=settings.ends_within_beam,
            patience=settings.patience,
            num_best=plain.num_best or settings.beam_size,
        )

    def _tables(self, settings: DecodeConfig) -> tuple[FirstEntries, FirstEntries]:
        """By length: the longest output of a source, and the length penalty of an output."""
        if settings not in self._lengths:
            name = settings.length_penalty, settings.length_normalization
            self._lengths[settings] = (
                FirstEntries(lambda count: output_limits(np.arange(count), settings).numpy()),
                FirstEntries(lambda count: length_penalty(np.arange(count), *name).numpy()),
            )
        return self._lengths[settings]

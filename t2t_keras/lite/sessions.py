"""The converted graphs of a model, and the sessions that run them."""

import threading
from typing import NamedTuple

import numpy as np

from t2t_keras.lite.encoder_graph import encoder_graph
from t2t_keras.lite.interpreter import converted
from t2t_keras.lite.session import Session
from t2t_keras.lite.step_graph import StepGraph
from t2t_keras.lite.tables import Tables
from t2t_keras.models.contract import AttentionStacks


class Kind(NamedTuple):
    """What a search needs.

    Attributes:
        beam_size: hypotheses a sentence.
        log_totals: whether it asks for log-probabilities.
    """

    beam_size: int
    log_totals: bool


class Sessions:
    """Converts a model once, and lends every search a session that no other has.

    Args:
        model: computes in float32.
        int8: as of `converted`.
        threads: of each operation.
    """

    def __init__(self, model: AttentionStacks, int8: bool, threads: int) -> None:
        self._model, self._int8, self._threads = model, int8, threads
        self._lock = threading.Lock()
        self._encoder: bytes | None = None
        self._tables: Tables | None = None
        self._steps: dict[Kind, bytes] = {}
        self._idle: dict[Kind, list[Session]] = {}

    def convert(self, kind: Kind) -> None:
        """Converts what such searches need, unless it is there; must come before their first session."""
        with self._lock:
            if self._tables is None:
                self._encoder = converted(encoder_graph(self._model), self._int8)
                self._tables = Tables(self._model)
            if kind not in self._idle:
                self._steps[kind] = converted(StepGraph(self._model, *kind).function(), self._int8)
                self._idle[kind] = []

    @property
    def tables(self) -> Tables:
        """Of the model, once something is converted."""
        return self._tables

    def start(self, kind: Kind, inputs: np.ndarray, hidden: np.ndarray) -> Session:
        """A session that has begun; see `Session.start`."""
        with self._lock:
            session = self._idle[kind].pop() if self._idle[kind] else None
        if session is None:
            attentions = [layer.self_attention for layer in self._model.decoder.layers]
            heads = [(attention.num_heads, attention.d_key, attention.d_value) for attention in attentions]
            session = Session(self._encoder, self._steps[kind], heads, *kind, self._threads)
        session.start(inputs, hidden)
        return session

    def let_go(self, kind: Kind, session: Session) -> None:
        """Takes a session back, whose search went well."""
        with self._lock:
            self._idle[kind].append(session)

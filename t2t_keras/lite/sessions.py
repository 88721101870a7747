"""The converted graphs of a model, and the sessions that run them."""

import threading
from typing import NamedTuple

import numpy as np

from t2t_keras.formats.graphs.encoder_graph import encoder_graph
from t2t_keras.formats.graphs.step_graph import StepGraph
from t2t_keras.lite.interpreter import converted
from t2t_keras.lite.session import Session
from t2t_keras.lite.tables import Tables
from t2t_keras.models.contract import AttentionStacks


class Kind(NamedTuple):
    """The properties of a search that need a separate conversion.

    Attributes:
        beam_size: hypotheses per sentence.
        log_totals: whether log-probabilities are needed.
    """

    beam_size: int
    log_totals: bool


class Sessions:
    """Converts a float32 model once, and lends each search a session that no other search uses."""

    def __init__(self, model: AttentionStacks, int8: bool, threads: int) -> None:
        self._model, self._int8, self._threads = model, int8, threads
        self._lock = threading.Lock()
        self._encoder: bytes | None = None
        self._tables: Tables | None = None
        self._steps: dict[Kind, bytes] = {}
        self._idle: dict[Kind, list[Session]] = {}

    def convert(self, kind: Kind) -> None:
        """Converts the graphs of this kind unless that is done; must precede its first session."""
        with self._lock:
            if self._tables is None:
                self._encoder = converted(encoder_graph(self._model), self._int8)
                self._tables = Tables(self._model)
            if kind not in self._idle:
                self._steps[kind] = converted(StepGraph(self._model, *kind).function(), self._int8)
                self._idle[kind] = []

    @property
    def tables(self) -> Tables:
        """The model's tables, available after the first conversion."""
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
        """Takes back the session of a successful search."""
        with self._lock:
            self._idle[kind].append(session)

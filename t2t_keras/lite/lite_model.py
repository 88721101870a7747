"""A model whose steps TensorFlow Lite computes."""

import contextlib
import itertools
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_keras.lite.session import Session, newest_bias
from t2t_keras.lite.sessions import Kind, Sessions
from t2t_keras.models.contract import (
    ATTENTION,
    COVERAGE,
    LITE,
    Attentions,
    AttentionStacks,
    Cache,
    Search,
    States,
    attention_views,
    first_coverage,
)
from t2t_keras.symbols import PAD_ID


class LiteModel:
    """A `SearchedModel` that is faster on a CPU, if `LiteEngine([model])` is the engine of its searches.

    The weights must not change after the first search: they are converted at the first search of each kind, in three
    seconds for `tiny` and twenty for `base`. Scores of given translations and explanations come from the model itself.
    Searches run in Python, so neither on a GPU nor in an export.

    Args:
        model: a model that offers `LITE` and computes in float32.
        int8: whether steps multiply 8-bit weights and activations: faster still, but some outputs differ.
        threads: threads per operation; 1 if several batches are translated at once.

    Attributes:
        sessions: the converted graphs, and the sessions that run them.

    Raises:
        ValueError: a model that does not offer `LITE`, or another compute dtype.
    """

    def __init__(self, model: AttentionStacks, int8: bool = False, threads: int = 1) -> None:
        if LITE not in model.offers:
            raise ValueError(f"model must offer {LITE!r}, got one that offers {', '.join(sorted(model.offers))}")
        if model.compute_dtype != "float32":
            raise ValueError(f"model must compute in float32, got {model.compute_dtype}")
        self.model = model
        self.offers = model.offers & {ATTENTION, COVERAGE}
        self.sessions = Sessions(model, int8, threads)
        self._running: dict[int, tuple[Kind, Session]] = {}
        self._numbers = itertools.count()
        self._searches = 0
        self._lock = threading.Lock()

    def states(self, inputs: dict[str, tf.Tensor], **settings: Any) -> States:
        return self.model.states(inputs, **settings)

    def logits(self, hidden: tf.Tensor) -> tf.Tensor:
        return self.model.logits(hidden)

    def encode(self, source: tf.Tensor) -> tf.Tensor:
        """The embedded source, float32 [batch, source_len, d_model]; the encoder itself runs when a search starts."""
        return self.model.source_positions(self.model.source_embedding(source))

    def logits_and_attention(self, inputs: dict[str, tf.Tensor]) -> tuple[tf.Tensor, Attentions]:
        return attention_views(self.model).logits_and_attention(inputs)

    def alignment_attention(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        return attention_views(self.model).alignment_attention(inputs)

    def begin(
        self, source: tf.Tensor, memory: tf.Tensor, beam_size: int, *, wanted: frozenset[str] = frozenset()
    ) -> Search:
        """Prepares a search whose keys and values are kept outside the graph; `wanted` is "coverage" or nothing."""
        # The totals are not used here, but plain searches need them and share the converted graph.
        kind = Kind(beam_size, log_totals=True)
        with tf.init_scope():
            self.sessions.convert(kind)

        def start(inputs: np.ndarray, hidden: np.ndarray) -> np.int64:
            number = next(self._numbers)
            self._running[number] = kind, self.sessions.start(kind, inputs, hidden)
            return np.int64(number)

        number = tf.ensure_shape(tf.numpy_function(start, [memory, source == PAD_ID], tf.int64), [])
        batch = tf.shape(source)[0]
        # Masks the cache entries of other hypotheses, [batch, beam, positions * beam].
        bias = tf.zeros([batch, beam_size, 0])
        coverage = first_coverage(source if COVERAGE in wanted else source[:, :0], beam_size)
        cache = Cache(tf.constant(0), bias, tf.range(batch), (), coverage)
        return Search(
            lambda token_ids, cache: self._graph_step(number, token_ids, cache, COVERAGE in wanted),
            cache,
            lambda: tf.numpy_function(self._end, [number], []),
        )

    def _graph_step(
        self, number: tf.Tensor, token_ids: tf.Tensor, cache: Cache, covers: bool
    ) -> tuple[tf.Tensor, Cache]:
        """The step function of the search with this number."""
        bias, beam_size = cache.per_hypothesis, cache.per_hypothesis.shape[1]
        x = self.model.target_embedding(token_ids[:, tf.newaxis])  # --> [batch * beam, 1, d_model]
        x = tf.squeeze(self.model.target_positions(x, start=cache.position), 1)  # --> [batch * beam, d_model]
        inputs = [number, x, cache.per_sentence, *([bias] if beam_size > 1 else [])]
        logits = tf.numpy_function(self._step, inputs, tf.float32)
        coverage = cache.coverage
        if covers:
            with tf.control_dependencies([logits]):
                attention = tf.numpy_function(self._attention, [number], tf.float32)
            coverage += tf.ensure_shape(attention, coverage.shape)  # --> [batch, beam, source_len]
        if beam_size > 1:
            newest = tf.broadcast_to(newest_bias(beam_size), [tf.shape(bias)[0], beam_size, beam_size])
            bias = tf.concat([bias, newest], axis=2)
        cache = Cache(cache.position + 1, bias, cache.per_sentence, cache.source, coverage)
        return tf.ensure_shape(logits, [None, self.model.config.vocab_size]), cache

    @contextlib.contextmanager
    def searching(self) -> Iterator[None]:
        """A context for one search; when the last one exits, the sessions of failed searches are dropped."""
        with self._lock:
            self._searches += 1
        try:
            yield
        finally:
            with self._lock:
                self._searches -= 1
                if not self._searches:
                    self._running.clear()

    def _step(self, number: np.int64, *inputs: np.ndarray) -> np.ndarray:
        with self._session(number) as session:
            session.advance(*inputs)
            return session.logits()

    def _attention(self, number: np.int64) -> np.ndarray:
        with self._session(number) as session:
            return session.attention()

    @contextlib.contextmanager
    def _session(self, number: np.int64) -> Iterator[Session]:
        """The session of a search, which ends if the body fails."""
        try:
            yield self._running[int(number)][1]
        except BaseException:
            self._running.pop(int(number), None)
            raise

    def _end(self, number: np.int64) -> None:
        self.sessions.let_go(*self._running.pop(int(number)))

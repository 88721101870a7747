"""A Transformer whose steps TensorFlow Lite computes."""

import contextlib
import itertools
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_keras.config import PAD_ID
from t2t_keras.decoding.greedy import GreedyResult
from t2t_keras.decoding.lite import greedy
from t2t_keras.decoding.lite.encoder_graph import encoder_graph
from t2t_keras.decoding.lite.interpreter import converted
from t2t_keras.decoding.lite.session import Session
from t2t_keras.decoding.lite.step_graph import StepGraph
from t2t_keras.model import Transformer

Cache = dict[str, Any]


class LiteModel:
    """A `Transformer` whose searches are faster on a CPU; has its decoding methods.

    The weights are those that the model has when the first search begins; converting them takes two seconds for a
    small model, ten for a large one. Scores of given translations and explanations are the model's own.

    Searches run where Python runs: not on a GPU, not in an export.

    Args:
        model: what is searched; its compute dtype is float32.
        int8: whether the steps' products are computed with weights and activations of 8 bits: faster again, and some
            outputs differ.
        threads: of each operation; 1 where several batches are translated side by side.

    Raises:
        ValueError: another compute dtype.
    """

    def __init__(self, model: Transformer, int8: bool = False, threads: int = 1) -> None:
        if model.compute_dtype != "float32":
            raise ValueError(f"model must compute in float32, got {model.compute_dtype}")
        self.model = model
        self.int8 = int8
        self._threads = threads
        self._lock = threading.Lock()
        self._encoder: bytes | None = None
        self._steps: dict[int, bytes] = {}
        self._running: dict[int, Session] = {}
        self._idle: dict[int, list[Session]] = {}
        self._numbers = itertools.count()

    def __call__(self, inputs: dict[str, tf.Tensor], training: bool = False) -> tf.Tensor:
        """The model's own call."""
        return self.model(inputs, training=training)

    def encode(self, source: tf.Tensor) -> tf.Tensor:
        """The embedded source, float32 [batch, source_len, d_model]: the encoder itself runs when a search starts."""
        return self.model.source_positions(self.model.source_embedding(source))

    def logits_and_cross_attention(self, inputs: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        """As `Transformer.logits_and_cross_attention`."""
        return self.model.logits_and_cross_attention(inputs)

    def start_cache(
        self, source: tf.Tensor, memory: tf.Tensor, beam_size: int, coverage: bool = False, bfloat16: bool = False
    ) -> Cache:
        """The cache before the first step, of which keys and values are kept beside the graph.

        Args:
            source: int [batch, source_len].
            memory: of `encode`.
            beam_size: hypotheses a sentence.
            coverage: whether the steps add up the attention to the source, for a coverage penalty.
            bfloat16: must be False.

        Raises:
            ValueError: `bfloat16` is asked for.
        """
        if bfloat16:
            raise ValueError("bfloat16 is of searches that TensorFlow computes alone, got bfloat16=True")
        with tf.init_scope():
            self._convert(beam_size)

        def start(inputs: np.ndarray, hidden: np.ndarray) -> np.int64:
            return np.int64(self._start(beam_size, inputs, hidden))

        number = tf.ensure_shape(tf.numpy_function(start, [memory, source == PAD_ID], tf.int64), [])
        batch = tf.shape(source)[0]
        hypotheses = tf.zeros([batch, beam_size, 0], tf.bool)
        if coverage:
            hidden = tf.cast(source == 0, tf.float32)[:, tf.newaxis]  # --> [batch, 1, source_len]
            hypotheses = {"own": hypotheses, "coverage": tf.repeat(hidden, beam_size, axis=1)}
        return {
            "position": tf.constant(0),
            "hypotheses": hypotheses,
            "self_attention": {"sentences": tf.range(batch)},
            "memory": {},
            "constants": {"search": number},
        }

    def decode_step(self, token_ids: tf.Tensor, cache: Cache) -> tuple[tf.Tensor, Cache]:
        """One position of every hypothesis.

        Args:
            token_ids: int [batch * beam], the token before this position.
            cache: of `start_cache` or of the step before.

        Returns:
            float32 [batch * beam, vocab], and the cache.
        """
        hypotheses = cache["hypotheses"]
        before = hypotheses["own"] if isinstance(hypotheses, dict) else hypotheses
        beam_size = before.shape[1]
        x = self.model.target_embedding(token_ids[:, tf.newaxis])  # --> [batch * beam, 1, d_model]
        x = tf.squeeze(self.model.target_positions(x, start=cache["position"]), 1)  # --> [batch * beam, d_model]
        given = [cache["constants"]["search"], x, cache["self_attention"]["sentences"]]
        given += [before] if beam_size > 1 else []
        logits = tf.numpy_function(self._step, given, tf.float32)
        own = tf.broadcast_to(tf.eye(beam_size, dtype=tf.bool), [tf.shape(before)[0], beam_size, beam_size])
        hypotheses_now = tf.concat([before, own], axis=2) if beam_size > 1 else before
        if isinstance(hypotheses, dict):
            with tf.control_dependencies([logits]):
                attention = tf.numpy_function(self._attention, given[:1], tf.float32)
            attention = tf.ensure_shape(attention, hypotheses["coverage"].shape)  # --> [batch, beam, source_len]
            hypotheses_now = {"own": hypotheses_now, "coverage": hypotheses["coverage"] + attention}
        changes = {"position": cache["position"] + 1, "hypotheses": hypotheses_now}
        return tf.ensure_shape(logits, [None, self.model.config.vocab_size]), {**cache, **changes}

    def greedy_search(self, step_fn: Any, cache: Cache, max_lengths: tf.Tensor, min_lengths: tf.Tensor) -> GreedyResult:
        """`t2t_keras.decoding.greedy.greedy_search` of this model, faster.

        Args:
            step_fn: `decode_step`.
            cache: of `start_cache` with a beam of one.
            max_lengths: int32 [batch].
            min_lengths: int32 [batch].
        """
        del step_fn  # this one knows its steps
        steps = tf.maximum(tf.reduce_max(max_lengths), 0)
        positions = self.model.target_positions(tf.zeros([1, steps, self.model.config.d_model]))[0]
        given = [cache["constants"]["search"], positions, max_lengths, min_lengths]
        found = tf.numpy_function(self._greedy, given, [tf.int32, tf.float32, tf.int32])
        return GreedyResult(
            *(tf.ensure_shape(value, [None] * rank) for value, rank in zip(found, (2, 1, 1), strict=True))
        )

    def end_search(self, cache: Cache) -> None:
        """Lets what the search used go to the next one.

        Args:
            cache: of `start_cache`.
        """
        tf.numpy_function(self._end, [cache["constants"]["search"]], [])

    def _convert(self, beam_size: int) -> None:
        """Converts what searches with this beam need, unless it is there."""
        with self._lock:
            if self._encoder is None:
                self._encoder = converted(encoder_graph(self.model), self.int8)
                self._table = self.model.target_embedding(tf.range(self.model.config.vocab_size)).numpy()
            if beam_size not in self._steps:
                self._steps[beam_size] = converted(StepGraph(self.model, beam_size).function(), self.int8)

    def _start(self, beam_size: int, inputs: np.ndarray, hidden: np.ndarray) -> int:
        """The number of a search that begins."""
        with self._lock:
            number = next(self._numbers)
            idle = self._idle.setdefault(beam_size, [])
            session = idle.pop() if idle else None
        if session is None:
            attentions = [layer.self_attention for layer in self.model.decoder.layers]
            heads = [(attention.num_heads, attention.d_key, attention.d_value) for attention in attentions]
            session = Session(self._encoder, self._steps[beam_size], heads, beam_size, self._threads)
        session.start(inputs, hidden)
        self._running[number] = session
        return number

    def _step(self, number: np.int64, *given: np.ndarray) -> np.ndarray:
        with self._session(number) as session:
            session.advance(*given)
            return session.logits()

    def _greedy(self, number: np.int64, *given: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        with self._session(number) as session:
            return greedy.greedy_search(session, self._table, *given)

    def _attention(self, number: np.int64) -> np.ndarray:
        with self._session(number) as session:
            return session.attention()

    @contextlib.contextmanager
    def _session(self, number: np.int64) -> Iterator[Session]:
        """That of a search, which is over if this fails."""
        try:
            yield self._running[int(number)]
        except BaseException:
            self._running.pop(int(number), None)
            raise

    def _end(self, number: np.int64) -> None:
        with self._lock:
            session = self._running.pop(int(number))
            self._idle[session.beam_size].append(session)

"""A Transformer whose steps TensorFlow Lite computes."""

import contextlib
import itertools
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_keras.config import PAD_ID, DecodeConfig
from t2t_keras.decoding.beam_search import SearchResult
from t2t_keras.decoding.first_entries import FirstEntries
from t2t_keras.decoding.lite.beam_search import BeamSearch, Limits
from t2t_keras.decoding.lite.greedy import greedy_search
from t2t_keras.decoding.lite.session import Session, newest_bias
from t2t_keras.decoding.lite.sessions import Kind, Sessions
from t2t_keras.decoding.scoring import length_penalty
from t2t_keras.model import Transformer

Cache = dict[str, Any]


class LiteModel:
    """A `Transformer` whose searches are faster on a CPU; has its decoding methods.

    The model's weights must not change once it has searched: they are converted when the first search of a kind
    begins, which takes three seconds for `tiny` and twenty for `base`. Scores of given translations and explanations
    are the model's own.

    Searches run where Python runs: not on a GPU, not in an export.

    Args:
        model: what is searched; its compute dtype is float32.
        int8: whether the steps' products are computed with weights and activations of 8 bits: faster again, and some
            outputs differ.
        threads: of each operation; 1 where several batches are translated side by side.

    Attributes:
        sessions: what is converted, and what runs.

    Raises:
        ValueError: another compute dtype.
    """

    def __init__(self, model: Transformer, int8: bool = False, threads: int = 1) -> None:
        if model.compute_dtype != "float32":
            raise ValueError(f"model must compute in float32, got {model.compute_dtype}")
        self.model = model
        self.sessions = Sessions(model, int8, threads)
        self._running: dict[int, tuple[Kind, Session]] = {}
        self._numbers = itertools.count()
        self._searches = 0
        self._lock = threading.Lock()
        self._penalties: dict[tuple[float, str], FirstEntries] = {}

    def states(self, inputs: dict[str, tf.Tensor], training: bool = False) -> tf.Tensor:
        """As `Transformer.states`."""
        return self.model.states(inputs, training=training)

    def logits(self, states: tf.Tensor) -> tf.Tensor:
        """As `Transformer.logits`."""
        return self.model.logits(states)

    def encode(self, source: tf.Tensor) -> tf.Tensor:
        """The embedded source, float32 [batch, source_len, d_model]: the encoder itself runs when a search starts."""
        return self.model.source_positions(self.model.source_embedding(source))

    def logits_and_cross_attention(self, inputs: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        """As `Transformer.logits_and_cross_attention`."""
        return self.model.logits_and_cross_attention(inputs)

    def alignment_attention(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        """As `Transformer.alignment_attention`."""
        return self.model.alignment_attention(inputs)

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
        _check_bfloat16(bfloat16)
        kind = Kind(
            beam_size, log_totals=True
        )  # which are not looked at: so that plain searches share what is converted
        with tf.init_scope():
            self.sessions.convert(kind)

        def start(inputs: np.ndarray, hidden: np.ndarray) -> np.int64:
            number = next(self._numbers)
            self._running[number] = kind, self.sessions.start(kind, inputs, hidden)
            return np.int64(number)

        number = tf.ensure_shape(tf.numpy_function(start, [memory, source == PAD_ID], tf.int64), [])
        batch = tf.shape(source)[0]
        hypotheses = tf.zeros([batch, beam_size, 0])
        if coverage:
            hidden = tf.cast(source == 0, tf.float32)[:, tf.newaxis]  # --> [batch, 1, source_len]
            hypotheses = {"bias": hypotheses, "coverage": tf.repeat(hidden, beam_size, axis=1)}
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
        before = hypotheses["bias"] if isinstance(hypotheses, dict) else hypotheses
        beam_size = before.shape[1]
        x = self.model.target_embedding(token_ids[:, tf.newaxis])  # --> [batch * beam, 1, d_model]
        x = tf.squeeze(self.model.target_positions(x, start=cache["position"]), 1)  # --> [batch * beam, d_model]
        given = [cache["constants"]["search"], x, cache["self_attention"]["sentences"]]
        given += [before] if beam_size > 1 else []
        logits = tf.numpy_function(self._step, given, tf.float32)
        newest = tf.broadcast_to(newest_bias(beam_size), [tf.shape(before)[0], beam_size, beam_size])
        hypotheses_now = tf.concat([before, newest], axis=2) if beam_size > 1 else before
        if isinstance(hypotheses, dict):
            with tf.control_dependencies([logits]):
                attention = tf.numpy_function(self._attention, given[:1], tf.float32)
            attention = tf.ensure_shape(attention, hypotheses["coverage"].shape)  # --> [batch, beam, source_len]
            hypotheses_now = {"bias": hypotheses_now, "coverage": hypotheses["coverage"] + attention}
        changes = {"position": cache["position"] + 1, "hypotheses": hypotheses_now}
        return tf.ensure_shape(logits, [None, self.model.config.vocab_size]), {**cache, **changes}

    def plain_search(
        self, source: np.ndarray, max_lengths: np.ndarray, config: DecodeConfig, num_best: int, scored: bool
    ) -> SearchResult:
        """What `t2t_keras.decoding.beam_search.beam_search` finds without options, faster; not for a graph.

        Args:
            source: int [batch, source_len].
            max_lengths: int32 [batch], most tokens of an output.
            config: of the search.
            num_best: hypotheses that are returned.
            scored: as of `beam_search`.

        Raises:
            ValueError: `config.bfloat16` is set.
        """
        _check_bfloat16(config.bfloat16)
        kind = Kind(config.beam_size, log_totals=scored or config.beam_size > 1)
        self.sessions.convert(kind)
        tables, steps = self.sessions.tables, max(max_lengths.max(initial=0), 0)
        minima = np.full_like(max_lengths, config.min_length)
        settings = (config.length_penalty, config.length_normalization)
        if settings not in self._penalties:
            self._penalties[settings] = FirstEntries(lambda count: length_penalty(np.arange(count), *settings).numpy())
        limits = Limits(max_lengths, minima, self._penalties[settings](steps + 1), config.patience, num_best)
        inputs = tables.source[source] + tables.source_positions(source.shape[1])
        session = self.sessions.start(kind, inputs, source == PAD_ID)
        given = session, tables.target, tables.target_positions(steps), limits
        found = BeamSearch(*given).run() if config.beam_size > 1 else greedy_search(*given, scored)
        self.sessions.let_go(kind, session)
        return SearchResult(*map(tf.constant, found))

    @contextlib.contextmanager
    def searching(self) -> Iterator[None]:
        """Within it a search may run; what failed searches have left is let go of once no other runs either."""
        with self._lock:
            self._searches += 1
        try:
            yield
        finally:
            with self._lock:
                self._searches -= 1
                if not self._searches:
                    self._running.clear()

    def end_search(self, cache: Cache) -> None:
        """Lets what the search used go to the next one.

        Args:
            cache: of `start_cache`.
        """
        tf.numpy_function(self._end, [cache["constants"]["search"]], [])

    def _step(self, number: np.int64, *given: np.ndarray) -> np.ndarray:
        with self._session(number) as session:
            session.advance(*given)
            return session.logits()

    def _attention(self, number: np.int64) -> np.ndarray:
        with self._session(number) as session:
            return session.attention()

    @contextlib.contextmanager
    def _session(self, number: np.int64) -> Iterator[Session]:
        """That of a search, which is over if this fails."""
        try:
            yield self._running[int(number)][1]
        except BaseException:
            self._running.pop(int(number), None)
            raise

    def _end(self, number: np.int64) -> None:
        self.sessions.let_go(*self._running.pop(int(number)))


def _check_bfloat16(bfloat16: bool) -> None:
    if bfloat16:
        raise ValueError("bfloat16 is of searches that TensorFlow computes alone, got bfloat16=True")

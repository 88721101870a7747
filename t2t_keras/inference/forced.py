"""The probability that a model gives to translations that somebody else made (forced decoding)."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.models.contract import ScoringModel
from t2t_keras.search.batches import Progress, length_batches, padded
from t2t_keras.symbols import PAD_ID

# Most tokens, end symbol included, of a side that is scored: it cannot be cut in parts as a source can.
MAX_SCORED_LENGTH = 1024

# Tokens of which the logits lie in memory at a time: 38 MB of a vocabulary of 37,000 words, whatever the batch.
_CHUNK_TOKENS = 256


@dataclasses.dataclass(frozen=True)
class ForcedScore:
    """What a model thinks of one translation.

    Attributes:
        log_prob: total log-probability, the end symbol included.
        score: log-probability over length penalty, as a search's own.
        pieces: the translation's tokens, the end symbol last.
        token_log_probs: the log-probability of each of them, given those before it.
    """

    log_prob: float
    score: float
    pieces: tuple[str, ...]
    token_log_probs: tuple[float, ...]


def token_log_probs_function(model: ScoringModel) -> Callable[[np.ndarray, np.ndarray], tf.Tensor]:
    """A compiled function that gives the log-probability of each target token.

    Args:
        model: as of `token_log_probs`.

    Returns:
        `token_log_probs` of source ids, int32 [batch, source_len], and target ids, int32 [batch, target_len].
    """

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)] * 2, autograph=False)
    def compiled(source: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        return token_log_probs(model, source, target)

    return compiled


def token_log_probs(model: ScoringModel, source: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
    """The log-probability of each target token, computed some hundred tokens at a time.

    Args:
        model: what predicts.
        source: int32 [batch, source_len], padded with 0.
        target: int32 [batch, target_len], padded with 0.

    Returns:
        float32 [batch, target_len]: natural logarithms, 0 where there is padding.
    """
    places = tf.where(target != PAD_ID)  # --> [tokens, 2]
    hidden = model.states({"source": source, "target": target}, training=False).hidden
    hidden = tf.nest.map_structure(lambda values: tf.gather_nd(values, places), hidden)  # --> [tokens, d_model]
    ids = tf.gather_nd(target, places)

    def add_chunk(start: tf.Tensor, found: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        end = start + _CHUNK_TOKENS
        logits = tf.cast(model.logits(tf.nest.map_structure(lambda values: values[start:end], hidden)), tf.float32)
        return end, tf.concat([found, _log_probs(logits, ids[start:end])], axis=0)

    _, found = tf.while_loop(
        lambda start, _: start < tf.size(ids),
        add_chunk,
        (tf.constant(0), tf.zeros([0])),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None])),
        parallel_iterations=1,  # more would lie in memory side by side
    )
    return tf.scatter_nd(places, found, tf.shape(target, tf.int64))


def target_log_probs(logits: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
    """The log-probability of each target token.

    Args:
        logits: float32 [batch, target_len, vocab], to be normalised.
        target: int [batch, target_len].

    Returns:
        float32 [batch, target_len], 0 where there is padding.
    """
    return tf.where(target == PAD_ID, 0.0, _log_probs(logits, target))  # --> [batch, target_len]


def _log_probs(logits: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    """Of logits, float32 [..., vocab], those of one entry each: float32, the shape of `ids`."""
    return tf.gather(logits, ids, batch_dims=ids.shape.rank) - tf.reduce_logsumexp(logits, axis=-1)


def check_pairs(sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> None:
    """Refuses what cannot be scored.

    Args:
        sources: token ids of every line, end symbol included.
        targets: those of its translation.

    Raises:
        InputError: unequal numbers of lines, or a line of more than `MAX_SCORED_LENGTH` tokens.
    """
    if len(sources) != len(targets):
        raise InputError(f"{len(sources):,} lines, but {len(targets):,} translations to score")
    for side, rows in (("source", sources), ("translation", targets)):
        for number, ids in enumerate(rows, start=1):
            if len(ids) > MAX_SCORED_LENGTH:
                limit = f"at most {MAX_SCORED_LENGTH:,} can be scored"
                raise InputError(f"line {number:,}: the {side} has {len(ids):,} tokens; {limit}")


def pair_batches(
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    tokens_per_batch: int,
    on_progress: Progress | None = None,
) -> Iterator[tuple[list[int], np.ndarray, np.ndarray]]:
    """Pairs of similar length, longest first.

    Args:
        sources: token ids of every line, end symbol included.
        targets: those of its translation.
        tokens_per_batch: most pairs times tokens of their longest side.
        on_progress: called when a batch is done with.

    Yields:
        Which lines these are, and their padded sources, int32 [batch, source_len], and targets.
    """
    lengths = [max(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
    done = 0
    for rows in length_batches(lengths, tokens_per_batch):
        yield rows, padded([sources[row] for row in rows]), padded([targets[row] for row in rows])
        done += len(rows)
        if on_progress is not None:
            on_progress(done, len(lengths))

"""Forced decoding: the probability that a model gives to existing translations."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.export_contract import MAX_LINE_TOKENS
from t2t_keras.models.contract import ScoringModel
from t2t_keras.search.batches import length_batches, padded
from t2t_keras.symbols import PAD_ID

# Maximum number of tokens, end symbol included, of a scored source or target; that of the signatures of an export.
MAX_SCORED_LENGTH = MAX_LINE_TOKENS

# Number of tokens whose logits are in memory at a time: 38 MB for a vocabulary of 37,000, independent of the batch.
_CHUNK_TOKENS = 256


@dataclasses.dataclass(frozen=True)
class ForcedScore:
    """A model's score of one translation.

    Attributes:
        log_prob: total log-probability, end symbol included.
        score: log-probability divided by the length penalty, as in a search.
        pieces: target tokens, ending with the end symbol.
        token_log_probs: log-probability of each token, given the tokens before it.
    """

    log_prob: float
    score: float
    pieces: tuple[str, ...]
    token_log_probs: tuple[float, ...]


def compiled_on_pairs(function: Callable[[tf.Tensor, tf.Tensor], Any]) -> Callable[[np.ndarray, np.ndarray], Any]:
    """Compiles a function of source and target ids, int32 [batch, length], padded with 0."""
    return tf.function(function, input_signature=[tf.TensorSpec([None, None], tf.int32)] * 2, autograph=False)


def token_log_probs_function(model: ScoringModel) -> Callable[[np.ndarray, np.ndarray], tf.Tensor]:
    """Compiles `token_log_probs` for source and target ids."""
    return compiled_on_pairs(lambda source, target: token_log_probs(model, source, target))


def token_log_probs(model: ScoringModel, source: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
    """Computes the natural log-probability of each target token.

    Args:
        model: the model.
        source: int32 [batch, source_len], padded with 0.
        target: int32 [batch, target_len], padded with 0.

    Returns:
        float32 [batch, target_len], 0 for padding.
    """
    return hidden_log_probs(model, model.states({"source": source, "target": target}, training=False).hidden, target)


def hidden_log_probs(model: ScoringModel, hidden: Any, target: tf.Tensor) -> tf.Tensor:
    """Computes `token_log_probs` from a model's hidden states, [batch, target_len, d_model].

    To bound memory, logits are computed for `_CHUNK_TOKENS` tokens at a time.
    """
    places = tf.where(target != PAD_ID)  # --> [tokens, 2]
    hidden = tf.nest.map_structure(lambda values: tf.gather_nd(values, places), hidden)  # --> [tokens, d_model]
    ids = tf.gather_nd(target, places)

    def add_chunk(start: tf.Tensor, log_probs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        end = start + _CHUNK_TOKENS
        logits = tf.cast(model.logits(tf.nest.map_structure(lambda values: values[start:end], hidden)), tf.float32)
        return end, tf.concat([log_probs, _log_probs(logits, ids[start:end])], axis=0)

    _, log_probs = tf.while_loop(
        lambda start, _: start < tf.size(ids),
        add_chunk,
        (tf.constant(0), tf.zeros([0])),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None])),
        parallel_iterations=1,  # parallel iterations would take more memory
    )
    return tf.scatter_nd(places, log_probs, tf.shape(target, tf.int64))


def target_log_probs(logits: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
    """Computes the log-probability of each target token from logits.

    Args:
        logits: float32 [batch, target_len, vocab].
        target: int32 [batch, target_len], padded with 0.

    Returns:
        float32 [batch, target_len], 0 for padding.
    """
    return tf.where(target == PAD_ID, 0.0, _log_probs(logits, target))  # --> [batch, target_len]


def _log_probs(logits: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    """Computes the log-probability of `ids`, int [...], by logits, float32 [..., vocab]: float32 [...]."""
    return tf.gather(logits, ids, batch_dims=ids.shape.rank) - tf.reduce_logsumexp(logits, axis=-1)


def check_pairs(sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> None:
    """Checks that pairs of lines, as token ids with end symbols, can be scored.

    Raises:
        InputError: the numbers of lines differ, or a line has more than `MAX_SCORED_LENGTH` tokens.
    """
    if len(sources) != len(targets):
        raise InputError(f"{len(sources):,} lines, but {len(targets):,} translations to score")
    for side, rows in (("source", sources), ("translation", targets)):
        for number, ids in enumerate(rows, start=1):
            if len(ids) > MAX_SCORED_LENGTH:
                limit = f"at most {MAX_SCORED_LENGTH:,} tokens can be scored"
                raise InputError(f"line {number:,}: the {side} has {len(ids):,} tokens; {limit}")


def pair_batches(
    sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], tokens_per_batch: int
) -> Iterator[tuple[list[int], np.ndarray, np.ndarray]]:
    """Yields batches of pairs of similar length, longest first.

    Args:
        sources: token ids of every line, end symbol included.
        targets: token ids of every line's translation, end symbol included.
        tokens_per_batch: limit of a batch's number of pairs times its longest side; a batch of one pair may exceed it.

    Yields:
        The indices of the lines; their sources, int32 [batch, source_len]; and their targets, int32 [batch,
        target_len]; both padded with 0.
    """
    lengths = [max(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
    for rows in length_batches(lengths, tokens_per_batch):
        yield rows, padded([sources[row] for row in rows]), padded([targets[row] for row in rows])

"""Builds batches from the epoch plan and the token ids; the share of each replica is a separate element.

The rows of a global batch are dealt to the replicas one by one, so that all shares have about the same number of
tokens. All shares of a batch have the same shape. Rows without a pair are padding (zeros), which does not count in the
loss. The pairs in a batch do not depend on the number of replicas.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
import tensorflow as tf

from t2t_keras.data.batching import EpochPlan, EpochPlans, Position, plan_in_length_order

Batch = dict[str, np.ndarray]

_PREFETCHED_BATCHES = 4


class EncodedPairs(Protocol):
    """The interface of `t2t_keras.data.encoded.EncodedCorpus` that batches need."""

    source_lengths: np.ndarray
    target_lengths: np.ndarray

    def source_ids(self, rows: np.ndarray, length: int | None = None) -> np.ndarray:
        """Returns the source ids of some rows, padded with 0 to `length`, int32 [rows, length]."""

    def target_ids(self, rows: np.ndarray, length: int | None = None) -> np.ndarray:
        """Returns the target ids of some rows, padded with 0 to `length`, int32 [rows, length]."""


class TrainingPairs(EncodedPairs, Protocol):
    """The interface that training needs: pairs that may differ between epochs."""

    def at(self, epoch: int) -> EncodedPairs:
        """Returns the pairs of an epoch, none longer than `source_lengths` and `target_lengths` say."""


def training_dataset(
    corpus: TrainingPairs,
    plans: EpochPlans,
    start: Position,
    num_replicas: int,
    replica_ids: Sequence[int],
    rows_multiple: int = 1,
    *,
    on_error: Callable[[Exception], object] = lambda error: None,
) -> tf.data.Dataset:
    """Returns an endless dataset of training batches, starting at a position in the plans.

    Each element is the share of one replica. The shares of all `replica_ids` in the first batch come first, then those
    in the second batch, and so on.

    Args:
        corpus: the pairs.
        plans: the plans of all epochs.
        start: first batch.
        num_replicas: number of replicas of all workers.
        replica_ids: replicas of this worker.
        rows_multiple: the number of rows of a share is a multiple of this, for gradient accumulation.
        on_error: called with an exception raised by reading, before TensorFlow replaces the exception.

    Returns:
        A dataset of {"source": int32 [rows, source_len], "target": int32 [rows, target_len]}.

    Raises:
        ValueError: `replica_ids` is empty or has an id outside [0, num_replicas), or `rows_multiple` is not positive.
    """
    _check_replicas(num_replicas, replica_ids, rows_multiple)

    def elements() -> Iterator[Batch]:
        try:
            for position in plans.positions(start):
                pairs, plan = corpus.at(position.epoch), plans.plan(position.epoch)
                yield from shares(pairs, plan, position.batch, num_replicas, replica_ids, rows_multiple)
        except Exception as error:
            on_error(error)
            raise

    return dataset_of(elements()).prefetch(_PREFETCHED_BATCHES * len(replica_ids))


@contextlib.contextmanager
def raising(errors: Sequence[Exception]) -> Iterator[None]:
    """Replaces an error of TensorFlow that is raised inside with the exception of reading that caused it.

    Args:
        errors: exceptions that `on_error` of `training_dataset` received; if empty, TensorFlow's error is raised.
    """
    try:
        yield
    except tf.errors.OpError:
        if errors:
            raise errors[0] from None
        raise


def dataset_of(batches: Iterable[Batch]) -> tf.data.Dataset:
    """Returns a dataset that yields the given batches in order and can be read only once.

    The dataset claims to be endless, so that a step on a TPU does not check for a next element; reading beyond the last
    batch is an error. The dataset does not use `Dataset.from_generator`, whose kernel sets glibc's mmap threshold to
    128 KiB (TensorFlow 2.15 and later on Python 3.11 and later). Every operation would then map and unmap the memory of
    larger tensors, for the rest of the process (`benchmarks.train_step` counts page faults).

    Args:
        batches: the batches.

    Returns:
        A dataset of {"source": int32 [rows, source_len], "target": int32 [rows, target_len]}.
    """
    iterator = iter(batches)

    def following() -> tuple[np.ndarray, np.ndarray]:
        batch = next(iterator)
        return batch["source"], batch["target"]

    def element(_: tf.Tensor) -> dict[str, tf.Tensor]:
        source, target = tf.numpy_function(following, [], [tf.int32, tf.int32])
        return {"source": tf.ensure_shape(source, [None, None]), "target": tf.ensure_shape(target, [None, None])}

    options = tf.data.Options()
    options.autotune.enabled = False  # replacing an iterator with autotuning can stall for seconds
    options.deterministic = True
    return tf.data.Dataset.counter().map(element).with_options(options)


def validation_batches(
    corpus: EncodedPairs,
    tokens_per_batch: int,
    num_replicas: int = 1,
    replica_ids: Sequence[int] = (0,),
    static_shapes: bool = False,
) -> Iterator[list[Batch]]:
    """Iterates once over a corpus in order of length.

    Arguments are as in `training_dataset` and `plan_in_length_order`. Errors are raised by the call itself, before the
    first batch.

    Returns:
        An iterator that yields, for each batch, the list of the shares of `replica_ids`.

    Raises:
        InputError: there are no pairs, or a pair is longer than the budget.
        ValueError: `replica_ids` is empty or has an id outside [0, num_replicas).
    """
    _check_replicas(num_replicas, replica_ids)
    plan = plan_in_length_order(corpus.source_lengths, corpus.target_lengths, tokens_per_batch, static_shapes)
    return (shares(corpus, plan, batch, num_replicas, replica_ids) for batch in range(plan.num_batches))


def shares(
    corpus: EncodedPairs,
    plan: EpochPlan,
    batch: int,
    num_replicas: int = 1,
    replica_ids: Sequence[int] = (0,),
    rows_multiple: int = 1,
) -> list[Batch]:
    """Returns the shares of `replica_ids` in one batch of a plan; arguments and shares are as in `training_dataset`."""
    share_rows, source_len, target_len = share_shape(plan.shape(batch), num_replicas, rows_multiple)
    rows = plan.rows(batch)
    rows = rows[np.argsort(corpus.target_lengths[rows], kind="stable")]
    padded_rows = np.full(num_replicas * share_rows, -1, np.int64)
    padded_rows[: len(rows)] = rows
    # Rows are dealt like cards, so that rows of similar length go to different replicas.
    replica_rows = padded_rows.reshape(share_rows, num_replicas).T[list(replica_ids)]  # --> [replicas, rows]
    source = _ids(corpus.source_ids, replica_rows, source_len)
    target = _ids(corpus.target_ids, replica_rows, target_len)
    return [{"source": s, "target": t} for s, t in zip(source, target, strict=True)]


def share_shape(shape: tuple[int, int, int], num_replicas: int, rows_multiple: int = 1) -> tuple[int, int, int]:
    """Returns the (rows, source length, target length) of each share of a batch of `shape`; rows are rounded up."""
    rows, source_len, target_len = shape
    parts = num_replicas * rows_multiple
    return -(-rows // parts) * rows_multiple, source_len, target_len


def _ids(read: Callable[[np.ndarray, int], np.ndarray], rows: np.ndarray, length: int) -> np.ndarray:
    """Reads the ids of rows, int [replicas, rows], with zeros for row -1; returns int32 [replicas, rows, length]."""
    ids = np.zeros((*rows.shape, length), np.int32)
    is_real = rows >= 0
    if is_real.any():
        ids[is_real] = read(rows[is_real], length)  # [real rows, length]
    return ids


def _check_replicas(num_replicas: int, replica_ids: Sequence[int], rows_multiple: int = 1) -> None:
    if rows_multiple < 1:
        raise ValueError(f"rows_multiple must be positive, got {rows_multiple}")
    if not replica_ids or not all(0 <= replica < num_replicas for replica in replica_ids):
        raise ValueError(f"replica_ids must be in [0, num_replicas={num_replicas}), got {list(replica_ids)}")

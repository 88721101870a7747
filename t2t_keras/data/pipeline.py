"""Builds batches from the epoch plan and the token ids; each replica's share is a separate element.

The rows of a global batch are dealt to the replicas one by one, so that shares have about equal numbers of tokens. All
shares of a batch have one shape; rows without a pair are zeros, which have no weight in the loss. The contents of a
batch do not depend on the number of replicas.
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
    """The part of `t2t_keras.data.encoded.EncodedCorpus` that batches need; `TrainingPairs` is what training needs."""

    source_lengths: np.ndarray
    target_lengths: np.ndarray

    def source_ids(self, rows: np.ndarray, length: int | None = None) -> np.ndarray:
        """The source ids of some rows, padded with 0 to `length`, int32 [rows, length]."""

    def target_ids(self, rows: np.ndarray, length: int | None = None) -> np.ndarray:
        """The target ids of some rows, padded with 0 to `length`, int32 [rows, length]."""


class TrainingPairs(EncodedPairs, Protocol):
    """Pairs that may differ between epochs."""

    def at(self, epoch: int) -> EncodedPairs:
        """The pairs as an epoch sees them; no longer than all epochs' lengths."""


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
    """Training batches of pairs from a position in their plans on, without end.

    Elements are {"source": int32 [rows, source_len], "target": int32 [rows, target_len]}, one for each replica: all of
    `replica_ids`, those of this worker, for the first batch, then all for the second; `num_replicas` counts those of
    all workers. The rows of a share are a multiple of `rows_multiple`, for gradient accumulation. `on_error` is called
    with what reading raises, before TensorFlow makes an error of its own of it. A ValueError names a replica id outside
    [0, num_replicas).
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

    # Otherwise each step on a TPU checks for a next element, and several workers have to agree on it.
    endless = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
    return dataset_of(elements).apply(endless).prefetch(_PREFETCHED_BATCHES * len(replica_ids))


@contextlib.contextmanager
def raising(errors: Sequence[Exception]) -> Iterator[None]:
    """Raises the first error of reading in place of what TensorFlow has made of it inside."""
    try:
        yield
    except tf.errors.OpError:
        if errors:
            raise errors[0] from None
        raise


def dataset_of(batches: Callable[[], Iterable[Batch]]) -> tf.data.Dataset:
    """A data set of what a function yields, in its order: source and target, int32 [rows, length] each."""
    ids = tf.TensorSpec([None, None], tf.int32)
    options = tf.data.Options()
    options.autotune.enabled = False  # an iterator that autotunes can idle for seconds when it is replaced
    options.deterministic = True
    dataset = tf.data.Dataset.from_generator(batches, output_signature={"source": ids, "target": ids})
    return dataset.with_options(options)


def validation_batches(
    corpus: EncodedPairs,
    tokens_per_batch: int,
    num_replicas: int = 1,
    replica_ids: Sequence[int] = (0,),
    static_shapes: bool = False,
) -> Iterator[list[Batch]]:
    """One pass over a corpus in order of length; yields the list of the shares of `replica_ids` for each batch.

    Elements and arguments are those of `training_dataset` and `plan_in_length_order`.

    Raises:
        InputError: there are no pairs, or one is longer than the budget; raised by the call, before the first batch.
        ValueError: a replica id is outside [0, num_replicas).
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
    """The shares of `replica_ids` in one batch of a plan; elements and arguments as in `training_dataset`."""
    share_rows, source_len, target_len = share_shape(plan.shape(batch), num_replicas, rows_multiple)
    rows = plan.rows(batch)
    rows = rows[np.argsort(corpus.target_lengths[rows], kind="stable")]
    dealt = np.full(num_replicas * share_rows, -1, np.int64)
    dealt[: len(rows)] = rows
    # Rows are dealt like cards: neighbours in length go to different replicas.
    replica_rows = dealt.reshape(share_rows, num_replicas).T[list(replica_ids)]  # --> [replicas, rows]
    source = _ids(corpus.source_ids, replica_rows, source_len)
    target = _ids(corpus.target_ids, replica_rows, target_len)
    return [{"source": s, "target": t} for s, t in zip(source, target, strict=True)]


def share_shape(shape: tuple[int, int, int], num_replicas: int, rows_multiple: int = 1) -> tuple[int, int, int]:
    """The (rows, source length, target length) of each share of a batch of `shape`; rows are rounded up."""
    rows, source_len, target_len = shape
    parts = num_replicas * rows_multiple
    return -(-rows // parts) * rows_multiple, source_len, target_len


def _ids(read: Callable[[np.ndarray, int], np.ndarray], rows: np.ndarray, length: int) -> np.ndarray:
    """The ids of rows [replicas, rows], zeros for row -1, int32 [replicas, rows, length]."""
    ids = np.zeros((*rows.shape, length), np.int32)
    real = rows >= 0
    if real.any():
        ids[real] = read(rows[real], length)  # [real rows, length]
    return ids


def _check_replicas(num_replicas: int, replica_ids: Sequence[int], rows_multiple: int = 1) -> None:
    if rows_multiple < 1:
        raise ValueError(f"rows_multiple must be positive, got {rows_multiple}")
    if not replica_ids or not all(0 <= replica < num_replicas for replica in replica_ids):
        raise ValueError(f"replica_ids must be in [0, num_replicas={num_replicas}), got {list(replica_ids)}")

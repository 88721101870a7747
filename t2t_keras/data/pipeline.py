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

    return dataset_of(elements()).prefetch(_PREFETCHED_BATCHES * len(replica_ids))


@contextlib.contextmanager
def raising(errors: Sequence[Exception]) -> Iterator[None]:
    """Raises the first error of reading in place of what TensorFlow has made of it inside."""
    try:
        yield
    except tf.errors.OpError:
        if errors:
            raise errors[0] from None
        raise


def dataset_of(batches: Iterable[Batch]) -> tf.data.Dataset:
    """Makes a dataset of batches in their order, to be read once: source and target, int32 [rows, length] each.

    The dataset claims to be endless, so that a step on a TPU does not check for a next element; reading more batches
    than there are is an error. It is no `Dataset.from_generator`, because creating that kernel sets the threshold from
    which glibc maps memory to 128 KiB (TensorFlow 2.15 and later on Python 3.11 and later). Larger tensors would then
    be mapped and unmapped in each operation for the rest of the process (`benchmarks.train_step` counts page faults).
    """
    iterator = iter(batches)

    def following() -> tuple[np.ndarray, np.ndarray]:
        batch = next(iterator)
        return batch["source"], batch["target"]

    def element(_: tf.Tensor) -> dict[str, tf.Tensor]:
        source, target = tf.numpy_function(following, [], [tf.int32, tf.int32])
        return {"source": tf.ensure_shape(source, [None, None]), "target": tf.ensure_shape(target, [None, None])}

    options = tf.data.Options()
    options.autotune.enabled = False  # an iterator that autotunes can idle for seconds when it is replaced
    options.deterministic = True
    return tf.data.Dataset.counter().map(element).with_options(options)


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

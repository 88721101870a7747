"""Communication between the processes that train together, and detection of lost ones.

All of them run the same program and make each call at the same place in it. A single process sends nothing.
"""

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from t2t_keras.errors import AwayError, InputError
from t2t_keras.machine.remote import with_urls
from t2t_keras.training.devices.cluster import WorkerLostError

# Errors of operations when another worker is gone: these kinds, or any kind with these words. All others, such as a
# GPU's InternalError or the UnknownError of a data pipeline, are faults of this worker.
_LOST = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError, tf.errors.DeadlineExceededError)
_LOST_WORDS = ("Collective ops is aborted", "remote process exited")  # the second is NCCL's


class Workers:
    """The workers of a strategy, this process among them.

    Attributes:
        count: number of workers; 1 unless several processes train together.
        index: this worker's index.
        is_chief: whether this worker writes the run.
        replica_ids: this worker's replicas among all.
    """

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        self._strategy = strategy
        resolver, replicas = strategy.cluster_resolver, strategy.num_replicas_in_sync
        self.count, self.index = 1, 0
        if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy) and resolver.task_id is not None:
            self.count, self.index = resolver.cluster_spec().num_tasks("worker"), resolver.task_id
        local = replicas // self.count
        self.is_chief = self.index == 0
        self.replica_ids = range(self.index * local, (self.index + 1) * local)

    def sum(self, values: Sequence[int] | np.ndarray) -> np.ndarray:
        """The sum of whole numbers over all workers: int64 of their shape, the same on each worker."""
        # A worker with one GPU sums on that GPU, where TensorFlow adds up int64 but keeps int32 in the host's memory.
        array = np.asarray(values, np.int64)
        if self.count == 1:
            return array
        # A constant might be cached from before the cluster existed, on a device outside it.
        total = self._strategy.reduce(tf.distribute.ReduceOp.SUM, tf.identity(array), axis=None)
        return total.numpy()

    def gather(self, data: bytes) -> list[bytes]:
        """The data of every worker, in order of their indices; the same on each worker."""
        if self.count == 1:
            return [data]
        lengths = np.zeros(self.count, np.int64)
        lengths[self.index] = len(data)
        lengths = self.sum(lengths)
        if not lengths.any():
            return [b""] * self.count
        table = np.zeros((self.count, int(np.max(lengths))), np.int64)  # --> [workers, longest]
        table[self.index, : len(data)] = np.frombuffer(data, np.uint8)
        table = self.sum(table).astype(np.uint8)
        return [row[:length].tobytes() for row, length in zip(table, lengths, strict=True)]

    def check_same(self, what: str, value: str) -> None:
        """Raises InputError on every worker if `value` differs between them; `what` names it in the plural."""
        values = [other.decode() for other in self.gather(value.encode())]
        odd = next((index for index, other in enumerate(values) if other != values[0]), None)
        if odd is not None:
            raise InputError(f"the workers have different {what}: worker 0 {values[0]}, worker {odd} {values[odd]}")

    @contextlib.contextmanager
    def alike(self) -> Iterator[None]:
        """Makes all workers fail if one fails inside, with an InputError that says what the first of them said.

        Or with an AwayError if that was one. What is inside must not involve the others.
        """
        if self.count == 1:
            yield
            return
        error: Exception | None = None
        try:
            yield
        except (InputError, OSError) as caught:
            error = caught
        kind, text = type(error).__name__, with_urls(str(error))  # paths in a mirror mean nothing to the others
        reasons = self.gather(b"" if error is None else f"{kind}\n{text or kind}".encode())
        if error is not None:
            raise error
        for index, reason in enumerate(reasons):
            if reason:
                kind, _, text = reason.decode().partition("\n")
                raise (AwayError if kind == AwayError.__name__ else InputError)(f"worker {index} failed: {text}")

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Raises WorkerLostError, with a message of one line, if another worker is lost inside."""
        try:
            yield
        except tf.errors.OpError as error:
            begins = [error.message.find(words) for words in _LOST_WORDS if words in error.message]
            if self.count == 1 or not (begins or isinstance(error, _LOST)):
                raise
            reason = error.message[min(begins, default=0) :].strip().partition("\n")[0]
            raise self.lost(reason) from error

    def lost(self, reason: str) -> WorkerLostError:
        """The error for a lost worker, in one line."""
        return WorkerLostError(
            f"worker {self.index} of {self.count} stops: another worker ended or cannot be reached; the same "
            f"command on all of them goes on from the last checkpoint ({reason[:200]})"
        )

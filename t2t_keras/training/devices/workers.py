"""Communication between the processes that train together, and detection of lost processes.

All processes run the same program and must make the same calls in the same order. A single process does not
communicate.
"""

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from t2t_keras.errors import AwayError, InputError
from t2t_keras.machine.remote import with_urls
from t2t_keras.training.devices.cluster import WorkerLostError

# A lost worker shows as an error of one of these types, or as any error with one of these phrases. All other errors,
# such as a GPU's InternalError or the UnknownError of a data pipeline, are faults of this worker.
_LOST_ERRORS = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
)
_LOST_WORDS = ("Collective ops is aborted", "remote process exited")  # the second is from NCCL


class Workers:
    """The processes of a strategy that train together, seen from this process.

    Attributes:
        count: number of workers; 1 unless several processes train together.
        index: this worker's index.
        is_chief: whether this worker writes the run's directory.
        replica_ids: ids of this worker's replicas among all replicas.
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
        """Sums integers over all workers; returns int64 of the same shape on every worker."""
        # A worker with one GPU sums on that GPU, where TensorFlow can add int64, but keeps int32 in host memory.
        array = np.asarray(values, np.int64)
        if self.count == 1:
            return array
        # `tf.identity`, because a constant may be cached on a device from before the cluster existed.
        total = self._strategy.reduce(tf.distribute.ReduceOp.SUM, tf.identity(array), axis=None)
        return total.numpy()

    def gather(self, data: bytes) -> list[bytes]:
        """Returns the data of every worker in the order of their indices, the same list on every worker."""
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
        """Raises an InputError on every worker if `value` differs between them.

        Args:
            what: plural noun for the values, used in the message.
            value: this worker's value.
        """
        values = [worker_value.decode() for worker_value in self.gather(value.encode())]
        worker = next((index for index, worker_value in enumerate(values) if worker_value != values[0]), None)
        if worker is not None:
            raise InputError(
                f"the workers have different {what}: worker 0 {values[0]}, worker {worker} {values[worker]}"
            )

    @contextlib.contextmanager
    def fail_together(self) -> Iterator[None]:
        """A context that makes all workers fail if one of them raises an InputError or an OSError inside.

        The failing worker raises its own error. The others raise an InputError, or an AwayError if the failure was one,
        with the message of the first failing worker. The code inside must not communicate with other workers.
        """
        if self.count == 1:
            yield
            return
        error: Exception | None = None
        try:
            yield
        except (InputError, OSError) as caught:
            error = caught
        kind, text = type(error).__name__, with_urls(str(error))  # local mirror paths mean nothing to other workers
        reasons = self.gather(b"" if error is None else f"{kind}\n{text or kind}".encode())
        if error is not None:
            raise error
        for index, reason in enumerate(reasons):
            if reason:
                kind, _, text = reason.decode().partition("\n")
                raise (AwayError if kind == AwayError.__name__ else InputError)(f"worker {index} failed: {text}")

    @contextlib.contextmanager
    def raising_worker_lost(self) -> Iterator[None]:
        """A context that raises a WorkerLostError with a one-line message if another worker is lost inside."""
        try:
            yield
        except tf.errors.OpError as error:
            positions = [error.message.find(words) for words in _LOST_WORDS if words in error.message]
            if self.count == 1 or not (positions or isinstance(error, _LOST_ERRORS)):
                raise
            reason = error.message[min(positions, default=0) :].strip().partition("\n")[0]
            raise self.lost(reason) from error

    def lost(self, reason: str) -> WorkerLostError:
        """Creates the error for a lost worker, with a one-line message."""
        return WorkerLostError(
            f"worker {self.index} of {self.count} stops: another worker ended or cannot be reached; run the same "
            f"command on all workers to resume from the last checkpoint ({reason[:200]})"
        )

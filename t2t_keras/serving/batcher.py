"""Merges requests that arrive together: a bounded queue, and streams of work that take batches from it."""

import collections
import contextlib
import dataclasses
import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError

import numpy as np

from t2t_keras.serving.errors import Code, ServingError, serving_error
from t2t_keras.serving.signatures import Arrays, Signature


@dataclasses.dataclass(eq=False)
class _Request:
    """What a caller waits for: the outputs of one part or of several."""

    future: Future
    outputs: list[Arrays | None]


@dataclasses.dataclass(eq=False)
class _Part:
    """As much of a request as fits into a batch; most requests are one part."""

    request: _Request
    index: int
    inputs: Arrays
    rows: int
    arrived: float


class _Queue:
    """What waits for one signature."""

    def __init__(self) -> None:
        self.parts: collections.deque[_Part] = collections.deque()
        self.rows = 0


class Batcher:
    """Runs requests in batches, a batch in each of some streams (threads).

    Requests for one signature are merged in the order of their arrival. A batch is run when it is
    full, or when its first request has waited long enough and a stream is free. If it fails, its
    requests are run one by one, so that each gets its own error.

    Args:
        max_batch_size: rows of a merged batch, at most. A request with more is run in parts.
        wait_seconds: how long a request waits for others, at most.
        num_streams: batches that run side by side.
        max_queue: rows that wait, at most.
        on_batch: is told the rows of each batch that is run.
    """

    def __init__(
        self,
        max_batch_size: int,
        wait_seconds: float,
        num_streams: int,
        max_queue: int,
        on_batch: Callable[[int], None] = lambda rows: None,
    ) -> None:
        self._max_batch_size = max_batch_size
        self._wait_seconds = wait_seconds
        self._max_queue = max_queue
        self._on_batch = on_batch
        self._changed = threading.Condition()
        self._queues: dict[Signature, _Queue] = {}
        self._waiting = 0
        self._closed = False
        self._streams = [
            threading.Thread(target=self._stream, name=f"stream-{number}", daemon=True) for number in range(num_streams)
        ]
        for stream in self._streams:
            stream.start()

    @property
    def waiting(self) -> int:
        """Rows that wait for a batch."""
        return self._waiting

    def submit(self, signature: Signature, inputs: Arrays, rows: int) -> Future:
        """Queues a request.

        Args:
            signature: what to run; requests are merged if it is mergeable.
            inputs: name -> array, checked.
            rows: the first dimension of the inputs.

        Returns:
            A future of the outputs, name -> array. Cancelling it takes what has not begun out of the queue.

        Raises:
            ServingError: the queue is full, or the batcher is closed.
        """
        split = signature.mergeable and rows > self._max_batch_size
        cuts = [*range(0, rows, self._max_batch_size), rows] if split else [0, rows]
        request = _Request(Future(), [None] * (len(cuts) - 1))
        now = time.monotonic()
        parts = [
            _Part(request, index, _rows_of(inputs, start, end) if split else inputs, end - start, now)
            for index, (start, end) in enumerate(itertools.pairwise(cuts))
        ]
        with self._changed:
            if self._closed:
                raise ServingError(Code.UNAVAILABLE, "the server is stopping")
            if self._waiting + rows > self._max_queue:
                raise ServingError(
                    Code.UNAVAILABLE,
                    f"the queue is full: {self._waiting} sentences wait and {rows} more would be above "
                    f"max_queue={self._max_queue}; try again later",
                )
            queue = self._queues.setdefault(signature, _Queue())
            queue.parts.extend(parts)
            queue.rows += rows
            self._waiting += rows
            self._changed.notify(len(parts))
        # Once it is queued: a future that is cancelled calls back at once.
        request.future.add_done_callback(lambda future: self._drop(signature, parts) if _in_vain(future) else None)
        return request.future

    def close(self, timeout: float) -> bool:
        """Takes no more requests, runs those that wait and ends the streams.

        Args:
            timeout: seconds to wait for them; what still waits then is refused.

        Returns:
            Whether all were run in time.
        """
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        deadline = time.monotonic() + timeout
        for stream in self._streams:
            stream.join(max(deadline - time.monotonic(), 0))
        with self._changed:
            left = [part for queue in self._queues.values() for part in queue.parts]
            self._queues.clear()
            self._waiting = 0
        for part in left:
            _fail(part, ServingError(Code.UNAVAILABLE, "the server is stopping"))
        return not any(stream.is_alive() for stream in self._streams)

    def _drop(self, signature: Signature, parts: list[_Part]) -> None:
        """Takes parts of a request that nobody waits for out of the queue, as far as they have not begun."""
        with self._changed:
            queue = self._queues.get(signature)
            for part in parts:
                if queue and part in queue.parts:
                    queue.parts.remove(part)
                    queue.rows -= part.rows
                    self._waiting -= part.rows
            if queue and not queue.parts:
                del self._queues[signature]

    def _stream(self) -> None:
        while taken := self._take():
            signature, parts = taken
            self._run(signature, parts)
            # Neither the model nor the answers are kept alive while the stream waits for more.
            del taken, signature, parts

    def _take(self) -> tuple[Signature, list[_Part]] | None:
        """Waits for the next batch; None once there will be no more."""
        with self._changed:
            while True:
                now = time.monotonic()
                due = {signature: self._due(signature, queue) for signature, queue in self._queues.items()}
                ripe = [signature for signature in due if due[signature] <= now]
                if ripe:
                    signature = min(ripe, key=lambda ripe: self._queues[ripe].parts[0].arrived)
                    return signature, self._next_batch(signature)
                if self._closed:
                    return None
                self._changed.wait(min(due.values()) - now if due else None)

    def _due(self, signature: Signature, queue: _Queue) -> float:
        """When the batch at the head of a queue is to be run."""
        if self._closed or not signature.mergeable or queue.rows >= self._max_batch_size:
            return 0.0
        return queue.parts[0].arrived + self._wait_seconds

    def _next_batch(self, signature: Signature) -> list[_Part]:
        queue = self._queues[signature]
        batch = [queue.parts.popleft()]
        rows = batch[0].rows
        while signature.mergeable and queue.parts and rows + queue.parts[0].rows <= self._max_batch_size:
            batch.append(queue.parts.popleft())
            rows += batch[-1].rows
        queue.rows -= rows
        self._waiting -= rows
        if not queue.parts:
            del self._queues[signature]
        return batch

    def _run(self, signature: Signature, parts: list[_Part]) -> None:
        """Runs a batch; where it fails, its requests one by one."""
        try:
            self._on_batch(sum(part.rows for part in parts))
            merged = _concatenated([part.inputs for part in parts])
            outputs = signature.run(merged)
            ends = list(itertools.accumulate(part.rows for part in parts))
            if len(parts) > 1:
                _check_rows(outputs, ends[-1])
        except Exception as error:
            if len(parts) == 1:
                _fail(parts[0], serving_error(error))
                return
            for part in parts:
                if not part.request.future.done():
                    self._run(signature, [part])
            return
        for part, end in zip(parts, ends, strict=True):
            _succeed(part, _rows_of(outputs, end - part.rows, end) if len(parts) > 1 else outputs)


def _in_vain(future: Future) -> bool:
    """Whether what is left of a request is of no use: it was given up, or a part of it has failed."""
    return future.cancelled() or future.exception() is not None


def _rows_of(arrays: Arrays, start: int, end: int) -> Arrays:
    return {name: array[start:end] for name, array in arrays.items()}


def _concatenated(parts: list[Arrays]) -> Arrays:
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _check_rows(outputs: Arrays, rows: int) -> None:
    """A model that gives other than a row for a row must not be cut up: nobody would know whose is whose."""
    for name, array in outputs.items():
        if array.shape[0] != rows:
            raise ValueError(f"output {name!r} has {array.shape[0]} rows for {rows}")


def _succeed(part: _Part, outputs: Arrays) -> None:
    request = part.request
    request.outputs[part.index] = outputs
    # Of two parts that end at the same time both may see all there; the first to set the result wins.
    if all(found is not None for found in request.outputs):
        with contextlib.suppress(InvalidStateError):
            request.future.set_result(_concatenated(request.outputs))


def _fail(part: _Part, error: ServingError) -> None:
    with contextlib.suppress(InvalidStateError):
        part.request.future.set_exception(error)

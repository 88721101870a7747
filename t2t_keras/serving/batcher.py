"""Merges requests that arrive together: a bounded queue, and streams (threads) that take batches from it."""

import collections
import contextlib
import dataclasses
import itertools
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError

import numpy as np

from t2t_keras.serving.request_errors import Code, ServingError, serving_error
from t2t_keras.serving.served_signatures import Arrays, Signature

_LOG = logging.getLogger(__name__)

# Rows of one cost class are merged: costs up to 128, up to 512, up to 2048, ...
_SMALL_COST = 128


@dataclasses.dataclass(eq=False)
class _Request:
    """A request, cut into one part or several.

    Attributes:
        future: the future of all outputs.
        arrived: time of arrival in seconds of `time.monotonic`.
        order: int [rows], the row of the request that each row of its parts is; None if the order is the same.
        parts: the parts that have not begun, of which only the first is in a queue.
        outputs: the outputs of each part, None until it has run.
    """

    future: Future
    arrived: float
    order: np.ndarray | None
    parts: collections.deque["_Part"]
    outputs: list[Arrays | None]


@dataclasses.dataclass(eq=False)
class _Part:
    """As much of a request as fits into a batch; most requests are one part.

    Attributes:
        request: the request that it belongs to.
        index: its index among the request's parts.
        inputs: arrays of its rows, by name.
        rows: number of its rows.
        cost: sum of its rows' costs.
        key: signature and cost class, the key of its queue.
        number: position in the order in which all parts were queued.
    """

    request: _Request
    index: int
    inputs: Arrays
    rows: int
    cost: int
    key: tuple[Signature, int]
    number: int = -1


class _Queue:
    """The waiting parts of one signature and cost class."""

    def __init__(self) -> None:
        self.parts: collections.deque[_Part] = collections.deque()
        self.rows = 0
        self.cost = 0

    def append(self, part: _Part) -> None:
        self.parts.append(part)
        self.rows += part.rows
        self.cost += part.cost

    def remove(self, part: _Part) -> None:
        self.parts.remove(part)
        self.rows -= part.rows
        self.cost -= part.cost


class Batcher:
    """Runs requests in batches, one batch at a time in each stream (thread).

    Rows of one signature and of similar cost are merged in the order of arrival, because a batch takes as long as its
    longest row. A batch is due when it is full or its first request has waited long enough, and runs once a stream is
    free. A request larger than a batch queues one part after another, so that requests take turns. If a batch fails,
    its requests are run one by one, so that each gets its own error.

    Args:
        max_batch_size: most rows of a batch.
        max_batch_cost: most cost of a batch; a single row may exceed it.
        wait_seconds: how long a request waits for others at most.
        num_streams: batches that run in parallel.
        max_queue_cost: most cost of all waiting rows; a request that waits alone may exceed it.
        on_batch: called with the number of rows of each batch that runs.
    """

    def __init__(
        self,
        max_batch_size: int,
        max_batch_cost: int,
        wait_seconds: float,
        num_streams: int,
        max_queue_cost: int,
        on_batch: Callable[[int], None] = lambda rows: None,
    ) -> None:
        self._max_batch_size = max_batch_size
        self._max_batch_cost = max_batch_cost
        self._wait_seconds = wait_seconds
        self._max_queue_cost = max_queue_cost
        self._on_batch = on_batch
        self._changed = threading.Condition()
        self._queues: dict[tuple[Signature, int], _Queue] = {}
        self._numbers = itertools.count()
        self._waiting = 0
        self._waiting_cost = 0
        self._closed = False
        self._streams = [
            threading.Thread(target=self._stream, name=f"stream-{number}", daemon=True) for number in range(num_streams)
        ]
        for stream in self._streams:
            stream.start()

    @property
    def waiting(self) -> int:
        """Number of rows that wait for a batch."""
        return self._waiting

    @property
    def waiting_cost(self) -> int:
        """Total cost of the rows that wait for a batch."""
        return self._waiting_cost

    def submit(self, signature: Signature, inputs: Arrays, costs: np.ndarray) -> Future:
        """Queues a request and returns the future of its outputs; cancelling it drops the parts that have not begun.

        Args:
            signature: what to run; its requests are merged only if it is mergeable.
            inputs: checked arrays by name.
            costs: int [rows], proportional to the work of each row; rows are the first dimension of the inputs.

        Raises:
            ServingError: the queue is full or the batcher is closed.
        """
        request = self._request(signature, inputs, costs)
        cost = int(costs.sum())
        with self._changed:
            if self._closed:
                raise ServingError(Code.UNAVAILABLE, "the server is stopping")
            if self._waiting and self._waiting_cost + cost > self._max_queue_cost:
                raise ServingError(
                    Code.UNAVAILABLE,
                    f"the queue is full: {self._waiting} sentences wait, {self._waiting_cost} bytes with their "
                    f"overhead, and {cost} more would be above max_queue_bytes={self._max_queue_cost}; try again later",
                )
            self._waiting += len(costs)
            self._waiting_cost += cost
            self._queue_next(request)
        # Only after queueing, because a future that is already cancelled calls back at once.
        request.future.add_done_callback(lambda future: self._drop(request) if _in_vain(future) else None)
        return request.future

    def close(self, timeout: float) -> bool:
        """Refuses new requests, runs the waiting ones and ends the streams.

        Returns whether all of them ran within `timeout` seconds; the remaining ones are refused.
        """
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        deadline = time.monotonic() + timeout
        for stream in self._streams:
            stream.join(max(deadline - time.monotonic(), 0))
        with self._changed:
            left = [part for queue in self._queues.values() for part in queue.parts]
        for part in left:
            _fail(part, ServingError(Code.UNAVAILABLE, "the server is stopping"))
        return not any(stream.is_alive() for stream in self._streams)

    def _request(self, signature: Signature, inputs: Arrays, costs: np.ndarray) -> _Request:
        """Cuts a request into parts, each of rows of similar cost."""
        rows = len(costs)
        request = _Request(Future(), time.monotonic(), None, collections.deque(), [])
        kinds = np.array([_kind(cost) for cost in costs.tolist()])
        if signature.mergeable:
            order = np.argsort(kinds, kind="stable")
            cuts = list(itertools.pairwise([*self._cuts(kinds[order], costs[order]), rows]))
        else:
            order, cuts = np.arange(rows), [(0, rows)]
        for index, (start, end) in enumerate(cuts):
            chosen = order[start:end]
            part_inputs = {name: array[chosen] for name, array in inputs.items()} if len(cuts) > 1 else inputs
            key = (signature, int(kinds[chosen].max()))
            request.parts.append(_Part(request, index, part_inputs, end - start, int(costs[chosen].sum()), key))
        request.order = order if len(cuts) > 1 else None
        request.outputs = [None] * len(cuts)
        return request

    def _cuts(self, kinds: np.ndarray, costs: np.ndarray) -> list[int]:
        """The rows at which parts begin."""
        cuts, cost = [0], 0
        for row, (kind, row_cost) in enumerate(zip(kinds.tolist(), costs.tolist(), strict=True)):
            full = row - cuts[-1] == self._max_batch_size or cost + row_cost > self._max_batch_cost
            if row > cuts[-1] and (full or kind != kinds[cuts[-1]]):
                cuts.append(row)
                cost = 0
            cost += row_cost
        return cuts

    def _queue_next(self, request: _Request) -> None:
        """Queues a request's next part behind those of other requests. The lock must be held."""
        if request.parts:
            part = request.parts[0]
            part.number = next(self._numbers)
            self._queues.setdefault(part.key, _Queue()).append(part)
            self._changed.notify()

    def _leave(self, part: _Part) -> None:
        """Takes a part out of its queue. The lock must be held."""
        queue = self._queues[part.key]
        queue.remove(part)
        if not queue.parts:
            del self._queues[part.key]
        self._forget(part.request.parts.popleft())

    def _forget(self, part: _Part) -> None:
        """Stops counting a part as waiting. The lock must be held."""
        self._waiting -= part.rows
        self._waiting_cost -= part.cost

    def _drop(self, request: _Request) -> None:
        """Drops the parts of a request that have not begun."""
        with self._changed:
            if request.parts:
                self._leave(request.parts[0])
            while request.parts:
                self._forget(request.parts.popleft())

    def _stream(self) -> None:
        while taken := self._take():
            try:
                self._run(*taken)
            except Exception:
                # After any error the stream must go on with the other requests.
                _LOG.exception("running a batch failed")
                for part in taken[1]:
                    _fail(part, ServingError(Code.INTERNAL, "running a batch failed"))
            # Frees the model and the answers while the stream waits for more.
            del taken

    def _take(self) -> tuple[Signature, list[_Part]] | None:
        """Waits for the next batch; returns None once the batcher is closed and nothing waits."""
        with self._changed:
            while True:
                now = time.monotonic()
                due = {key: self._due(key[0], queue) for key, queue in self._queues.items()}
                ripe = [key for key in due if due[key] <= now]
                if ripe:
                    key = min(ripe, key=lambda ripe: self._queues[ripe].parts[0].number)
                    return key[0], self._next_batch(key)
                if self._closed:
                    return None
                self._changed.wait(min(due.values()) - now if due else None)

    def _due(self, signature: Signature, queue: _Queue) -> float:
        """The time at which the batch at the head of a queue is due."""
        full = queue.rows >= self._max_batch_size or queue.cost >= self._max_batch_cost
        if self._closed or not signature.mergeable or full:
            return 0.0
        return queue.parts[0].request.arrived + self._wait_seconds

    def _next_batch(self, key: tuple[Signature, int]) -> list[_Part]:
        """Takes a batch from a queue and queues the next parts of its requests."""
        signature, parts = key[0], self._queues[key].parts
        batch = [parts[0]]
        rows, cost = batch[0].rows, batch[0].cost
        for part in itertools.islice(parts, 1, None):
            rows, cost = rows + part.rows, cost + part.cost
            if not signature.mergeable or rows > self._max_batch_size or cost > self._max_batch_cost:
                break
            batch.append(part)
        for part in batch:
            self._leave(part)
        for part in batch:
            self._queue_next(part.request)
        return batch

    def _run(self, signature: Signature, parts: list[_Part]) -> None:
        """Runs a batch; if it fails, runs its requests one by one."""
        self._on_batch(sum(part.rows for part in parts))
        try:
            _answer(signature, parts)
        except Exception as error:
            if len(parts) == 1:
                _fail(parts[0], serving_error(error))
                return
            for part in parts:
                self._run_alone(signature, part)

    def _run_alone(self, signature: Signature, part: _Part) -> None:
        """Runs a part of a failed batch, unless its request is already cancelled or answered."""
        if part.request.future.done():
            return
        try:
            _answer(signature, [part])
        except Exception as error:
            _fail(part, serving_error(error))


def _kind(cost: int) -> int:
    """The cost class of a row; only rows of the same class are merged."""
    return ((max(cost - 1, 0) // _SMALL_COST).bit_length() + 1) // 2


def _answer(signature: Signature, parts: list[_Part]) -> None:
    """Runs a batch and gives each part its rows of the outputs."""
    outputs = signature.run(_concatenated([part.inputs for part in parts]))
    ends = list(itertools.accumulate(part.rows for part in parts))
    if len(parts) > 1 or len(parts[0].request.outputs) > 1:
        _check_rows(outputs, ends[-1])
    for part, end in zip(parts, ends, strict=True):
        _succeed(part, _rows_of(outputs, end - part.rows, end) if len(parts) > 1 else outputs)


def _in_vain(future: Future) -> bool:
    """Whether a request was cancelled or one of its parts failed, so that the rest of it is useless."""
    return future.cancelled() or future.exception() is not None


def _rows_of(arrays: Arrays, start: int, end: int) -> Arrays:
    return {name: array[start:end] for name, array in arrays.items()}


def _concatenated(parts: list[Arrays]) -> Arrays:
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _check_rows(outputs: Arrays, rows: int) -> None:
    """Raises a `ValueError` unless each output has one row per input row: rows must not reach the wrong request."""
    for name, array in outputs.items():
        if array.shape[:1] != (rows,):
            raise ValueError(f"output {name!r} has the shape {list(array.shape)} for {rows} rows")


def _succeed(part: _Part, outputs: Arrays) -> None:
    request = part.request
    request.outputs[part.index] = outputs
    # Two parts that end at the same time may both see all outputs; the first to set the result wins.
    if all(part_outputs is not None for part_outputs in request.outputs):
        answer = _concatenated(request.outputs)
        if request.order is not None:
            back = np.argsort(request.order)
            answer = {name: array[back] for name, array in answer.items()}
        with contextlib.suppress(InvalidStateError):
            request.future.set_result(answer)


def _fail(part: _Part, error: ServingError) -> None:
    with contextlib.suppress(InvalidStateError):
        part.request.future.set_exception(error)

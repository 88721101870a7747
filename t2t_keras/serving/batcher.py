"""Merges requests that arrive together: a bounded queue, and streams of work that take batches from it."""

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

# Rows are merged with others of up to four times their cost: 128 and below, up to 512, up to 2048, ...
_SMALL_COST = 128


@dataclasses.dataclass(eq=False)
class _Request:
    """What a caller waits for: the outputs of one part or of several.

    Attributes:
        future: of the outputs.
        arrived: when, in seconds of `time.monotonic`.
        order: int [rows], which row of the request each row of its parts is; None: the rows are as they came.
        parts: those that have not begun. Only the first of them stands in a queue.
        outputs: of each part.
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
        request: it is of.
        index: among the request's parts.
        inputs: of its rows.
        rows: how many.
        cost: of all rows.
        key: of its queue.
        number: its place in the order of all parts that were queued.
    """

    request: _Request
    index: int
    inputs: Arrays
    rows: int
    cost: int
    key: tuple[Signature, int]
    number: int = -1


class _Queue:
    """What waits for one signature, of about the same length."""

    def __init__(self) -> None:
        self.parts: collections.deque[_Part] = collections.deque()
        self.rows = 0
        self.cost = 0

    def append(self, part: _Part) -> None:
        """Puts a part behind the others."""
        self.parts.append(part)
        self.rows += part.rows
        self.cost += part.cost

    def remove(self, part: _Part) -> None:
        """Takes a part out."""
        self.parts.remove(part)
        self.rows -= part.rows
        self.cost -= part.cost


class Batcher:
    """Runs requests in batches, a batch in each of some streams (threads).

    Rows for one signature that cost about the same are merged, in the order of their arrival: a batch
    lasts as long as its longest row. A batch is run when it is full, or when its first request has
    waited long enough and a stream is free. Of a request that is larger than a batch one part after
    another is queued, so that requests take turns. If a batch fails, its requests are run one by one,
    so that each gets its own error.

    Args:
        max_batch_size: rows of a batch, at most.
        max_batch_cost: of a batch, at most, unless it is a single row's.
        wait_seconds: how long a request waits for others, at most.
        num_streams: batches that run side by side.
        max_queue_cost: of all that waits, at most; whatever a request costs, it may wait alone.
        on_batch: is told the rows of each batch that is run.
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
        """Rows that wait for a batch."""
        return self._waiting

    @property
    def waiting_cost(self) -> int:
        """What the rows cost that wait for a batch."""
        return self._waiting_cost

    def submit(self, signature: Signature, inputs: Arrays, costs: np.ndarray) -> Future:
        """Queues a request.

        Args:
            signature: what to run; requests are merged if it is mergeable.
            inputs: name -> array, checked.
            costs: int [rows], of each row, the first dimension of the inputs: proportional to the work.

        Returns:
            A future of the outputs, name -> array. Cancelling it takes what has not begun out of the queue.

        Raises:
            ServingError: the queue is full, or the batcher is closed.
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
        # Once it is queued: a future that is cancelled calls back at once.
        request.future.add_done_callback(lambda future: self._drop(request) if _in_vain(future) else None)
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
        for part in left:
            _fail(part, ServingError(Code.UNAVAILABLE, "the server is stopping"))
        return not any(stream.is_alive() for stream in self._streams)

    def _request(self, signature: Signature, inputs: Arrays, costs: np.ndarray) -> _Request:
        """Cuts a request into parts, each of rows that cost about the same."""
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
        """Where parts begin."""
        cuts, cost = [0], 0
        for row, (kind, row_cost) in enumerate(zip(kinds.tolist(), costs.tolist(), strict=True)):
            full = row - cuts[-1] == self._max_batch_size or cost + row_cost > self._max_batch_cost
            if row > cuts[-1] and (full or kind != kinds[cuts[-1]]):
                cuts.append(row)
                cost = 0
            cost += row_cost
        return cuts

    def _queue_next(self, request: _Request) -> None:
        """With the lock held: lets a request's next part wait, behind those of the others."""
        if request.parts:
            part = request.parts[0]
            part.number = next(self._numbers)
            self._queues.setdefault(part.key, _Queue()).append(part)
            self._changed.notify()

    def _leave(self, part: _Part) -> None:
        """With the lock held: takes a part out of its queue."""
        queue = self._queues[part.key]
        queue.remove(part)
        if not queue.parts:
            del self._queues[part.key]
        self._forget(part.request.parts.popleft())

    def _forget(self, part: _Part) -> None:
        """With the lock held: a part no longer waits."""
        self._waiting -= part.rows
        self._waiting_cost -= part.cost

    def _drop(self, request: _Request) -> None:
        """Takes the parts of a request that nobody waits for, as far as they have not begun."""
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
                # Whatever it is, the stream goes on with the other requests.
                _LOG.exception("running a batch failed")
                for part in taken[1]:
                    _fail(part, ServingError(Code.INTERNAL, "running a batch failed"))
            # Neither the model nor the answers are kept alive while the stream waits for more.
            del taken

    def _take(self) -> tuple[Signature, list[_Part]] | None:
        """Waits for the next batch; None once there will be no more."""
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
        """When the batch at the head of a queue is to be run."""
        full = queue.rows >= self._max_batch_size or queue.cost >= self._max_batch_cost
        if self._closed or not signature.mergeable or full:
            return 0.0
        return queue.parts[0].request.arrived + self._wait_seconds

    def _next_batch(self, key: tuple[Signature, int]) -> list[_Part]:
        """Takes a batch from a queue, whose requests let their next parts wait."""
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
        """Runs a batch; where it fails, its requests one by one."""
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
        """Runs a part of a batch that failed, unless nobody waits for it."""
        if part.request.future.done():
            return
        try:
            _answer(signature, [part])
        except Exception as error:
            _fail(part, serving_error(error))


def _kind(cost: int) -> int:
    """Which rows a row is merged with."""
    return ((max(cost - 1, 0) // _SMALL_COST).bit_length() + 1) // 2


def _answer(signature: Signature, parts: list[_Part]) -> None:
    """Runs a batch and gives each part its rows."""
    outputs = signature.run(_concatenated([part.inputs for part in parts]))
    ends = list(itertools.accumulate(part.rows for part in parts))
    if len(parts) > 1 or len(parts[0].request.outputs) > 1:
        _check_rows(outputs, ends[-1])
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
        if array.shape[:1] != (rows,):
            raise ValueError(f"output {name!r} has the shape {list(array.shape)} for {rows} rows")


def _succeed(part: _Part, outputs: Arrays) -> None:
    request = part.request
    request.outputs[part.index] = outputs
    # Of two parts that end at the same time both may see all there; the first to set the result wins.
    if all(found is not None for found in request.outputs):
        answer = _concatenated(request.outputs)
        if request.order is not None:
            back = np.argsort(request.order)
            answer = {name: array[back] for name, array in answer.items()}
        with contextlib.suppress(InvalidStateError):
            request.future.set_result(answer)


def _fail(part: _Part, error: ServingError) -> None:
    with contextlib.suppress(InvalidStateError):
        part.request.future.set_exception(error)

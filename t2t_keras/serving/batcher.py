"""Dynamic batching: a bounded queue of requests, and streams (threads) that take batches from it."""

import collections
import dataclasses
import itertools
import logging
import math
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future

import numpy as np

from t2t_keras.serving.arrivals import waking_once
from t2t_keras.serving.cancelling import Cancellation
from t2t_keras.serving.ordering import Pace, cost_class, is_large, urgency
from t2t_keras.serving.parts import Key, Part, Request, check_rows, concatenated, fail, rows_of, succeed
from t2t_keras.serving.request_errors import Busy, Code, ServingError, invalid, serving_error
from t2t_keras.serving.served_signatures import Arrays, Signature

_LOG = logging.getLogger(__name__)

# Maximum size of a request that cannot be split into parts, in batches.
_MAX_BATCHES = 4

# How many parts at the head of a queue are considered for a batch; those most similar to the first are taken.
_MAX_COMPARED = 256


@dataclasses.dataclass(eq=False)
class _Batch:
    """Parts with the same key that a stream runs together, and the means to stop the run.

    Attributes:
        key: signature and cost class of the parts.
        parts: the parts that run now.
        retries: the parts of a failed batch, which the stream reruns one by one.
        cancellation: stops the run.
    """

    key: Key
    parts: list[Part]
    retries: list[Part] = dataclasses.field(default_factory=list)
    cancellation: Cancellation = dataclasses.field(default_factory=Cancellation)

    @property
    def is_done(self) -> bool:
        """Whether the requests of all running parts are already done or cancelled."""
        return all(part.request.future.done() for part in self.parts)


class Batcher:
    """Runs requests in batches, one batch at a time in each stream (thread).

    An idle stream runs waiting requests immediately. Requests that arrive while all streams are busy are merged into
    batches. Batches are not delayed to collect more requests: in measurements, that increased the latency and did not
    improve the throughput at any load.

    A batch takes as long as its longest row, so only rows of the same signature and of similar cost are merged: the
    oldest part of a queue is joined by the parts most similar to it. The most urgent queue is served first
    (`ordering.urgency`). With two or more streams, one is kept free of large rows. A request larger than a batch
    queues its parts one after another, so that requests take turns. If a batch fails, its parts are run one by one,
    so that each request gets its own error. A running batch is stopped once no request needs it.

    Args:
        max_batch_size: maximum number of rows in a batch.
        max_batch_cost: maximum cost of a batch; a single row may exceed it.
        num_streams: number of batches that run in parallel.
        max_queue_cost: maximum cost of all waiting rows; a request that finds the queue empty may exceed it.
        on_batch: called with the number of rows of each batch.

    Attributes:
        pace: measured run times of batches.
    """

    def __init__(
        self,
        max_batch_size: int,
        max_batch_cost: int,
        num_streams: int,
        max_queue_cost: int,
        on_batch: Callable[[int], None],
    ) -> None:
        self._max_batch_size = max_batch_size
        self._max_batch_cost = max_batch_cost
        self._max_queue_cost = max_queue_cost
        self._on_batch = on_batch
        self._num_streams = num_streams
        self.pace = Pace(max_batch_cost)
        self._changed = threading.Condition()
        self._queues: dict[Key, collections.deque[Part]] = {}  # the waiting parts
        self._running: set[_Batch] = set()
        self._waiting = 0
        self._waiting_costs: collections.Counter[int] = collections.Counter()  # by cost class
        self._closed = self._abandoned = False
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
        return self._waiting_costs.total()

    def submit(self, signature: Signature, inputs: Arrays, costs: np.ndarray, seconds: float | None) -> Future[Arrays]:
        """Queues a request.

        Args:
            signature: the signature to run. Its requests are merged, and split into parts, only if it is mergeable.
            inputs: checked arrays by name.
            costs: int [rows]. Proportional to the work of each row; rows are the first dimension of the inputs.
            seconds: how long the client will wait. None means the continuation of work that has started, which is
                always admitted.

        Returns:
            Future of the outputs. Cancelling it drops the parts that have not started. It also stops the running ones,
            unless their batch holds parts of other pending requests.

        Raises:
            ServingError: the request is too large to run unsplit, the queue is full or too slow, or the batcher is
                closed.
        """
        request = self._request(signature, inputs, costs)
        with self._changed:
            if self._closed:
                self._abandoned |= seconds is None
                raise _stop_error()
            self._check_room(request, seconds)
            for part in request.parts:
                self._waiting += part.rows
                self._waiting_costs[part.key[1]] += part.cost
            self._queue_next(request)
        # Only after queueing, because a future that is already cancelled calls back immediately. The reference is weak
        # because a cycle of future and request would keep the outputs in memory until the garbage collector runs.
        # Parts that wait or run keep the request alive.
        reference = weakref.ref(request)
        request.future.add_done_callback(lambda future: self._drop(reference()) if _is_useless(future) else None)
        return request.future

    def close(self, timeout: float) -> bool:
        """Refuses new requests, runs the waiting ones and ends the streams.

        Requests that remain after `timeout` seconds are abandoned.

        Returns:
            Whether no request was abandoned.
        """
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        deadline = time.monotonic() + timeout
        for stream in self._streams:
            stream.join(max(deadline - time.monotonic(), 0))
        self.abandon()
        return not self._abandoned

    def abandon(self) -> None:
        """Refuses new requests and fails all pending ones; running batches are stopped."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            parts = [part for queue in self._queues.values() for part in queue]
            running = [part for batch in self._running for part in (*batch.parts, *batch.retries)]
            parts += [part for part in running if not part.request.future.done()]
            self._abandoned |= bool(parts)
        for part in parts:
            fail(part, _stop_error())

    def _request(self, signature: Signature, inputs: Arrays, costs: np.ndarray) -> Request:
        """Splits a request into parts of rows with the same cost class."""
        rows = len(costs)
        request = Request(Future(), None, collections.deque(), [])
        if signature.mergeable:
            kinds = np.array([cost_class(cost) for cost in costs.tolist()])
            order = np.argsort(costs, kind="stable")
            cuts = list(itertools.pairwise([*self._cuts(kinds[order], costs[order]), rows]))
        else:
            # All rows are padded to the longest one, so each costs as much.
            costs = np.full(rows, costs.max())
            self._check_whole(signature, rows, int(costs.sum()))
            kinds = np.full(rows, cost_class(int(costs.sum())))
            order, cuts = np.arange(rows), [(0, rows)]
        for index, (start, end) in enumerate(cuts):
            part_rows = order[start:end]
            part_inputs = {name: array[part_rows] for name, array in inputs.items()} if len(cuts) > 1 else inputs
            key = (signature, int(kinds[part_rows].max()))
            request.parts.append(Part(request, index, part_inputs, end - start, int(costs[part_rows].sum()), key))
        request.order = order if len(cuts) > 1 else None
        request.outputs = [None] * len(cuts)
        return request

    def _check_whole(self, signature: Signature, rows: int, cost: int) -> None:
        """Refuses a request that cannot be split and exceeds `_MAX_BATCHES` batches; a single row may exceed it."""
        limit = _MAX_BATCHES * self._max_batch_cost
        if rows > 1 and cost > limit:
            raise invalid(
                f"a request for {signature.name!r} cannot be split into batches: its {rows} sentences, padded to the "
                f"longest, have {cost} bytes with their overhead; the limit is {limit}, four times max_batch_bytes"
            )

    def _check_room(self, request: Request, seconds: float | None) -> None:
        """Refuses a request if the queue is full or the expected wait is too long. The lock must be held."""
        if seconds is None or not self._waiting:
            return
        cost = sum(part.cost for part in request.parts)
        if self.waiting_cost + cost > self._max_queue_cost:
            raise Busy(
                f"the queue is full: {self._waiting} sentences wait, {self.waiting_cost} bytes with their "
                f"overhead, and {cost} more would exceed max_queue_bytes={self._max_queue_cost}; try again later"
            )
        # This request overtakes work of a higher cost class.
        number = max(part.key[1] for part in request.parts)
        costs_before = {other: cost for other, cost in self._waiting_costs.items() if other <= number}
        streams = self._num_streams - (self._num_reserved if is_large(number) else 0)
        wait = self.pace.seconds(costs_before) / streams
        if wait > seconds:
            raise Busy(
                f"the queue is too long: the waiting requests will take about {wait:.0f} s, and this request has "
                f"{seconds:.0f} s; try again later",
                retry_seconds=math.ceil(wait - seconds),
            )

    @property
    def _num_reserved(self) -> int:
        """The number of streams that are kept free of large rows."""
        return 1 if self._num_streams > 1 else 0

    def _cuts(self, kinds: np.ndarray, costs: np.ndarray) -> list[int]:
        """Returns the index of the first row of each part."""
        cuts, cost = [0], 0
        for row, (kind, row_cost) in enumerate(zip(kinds.tolist(), costs.tolist(), strict=True)):
            full = row - cuts[-1] == self._max_batch_size or cost + row_cost > self._max_batch_cost
            if row > cuts[-1] and (full or kind != kinds[cuts[-1]]):
                cuts.append(row)
                cost = 0
            cost += row_cost
        return cuts

    def _queue_next(self, request: Request) -> None:
        """Appends a request's next part to its queue. The lock must be held."""
        if request.parts:
            part = request.parts[0]
            part.queued = time.monotonic()
            self._queues.setdefault(part.key, collections.deque()).append(part)
            self._changed.notify()

    def _leave(self, part: Part) -> None:
        """Removes a part from its queue. The lock must be held."""
        queue = self._queues[part.key]
        queue.remove(part)
        if not queue:
            del self._queues[part.key]
        self._forget(part.request.parts.popleft())

    def _forget(self, part: Part) -> None:
        """Stops counting a part as waiting. The lock must be held."""
        self._waiting -= part.rows
        self._waiting_costs[part.key[1]] -= part.cost

    def _drop(self, request: Request | None) -> None:
        """Drops the queued parts of a request and stops batches that no request needs any more."""
        with self._changed:
            if request and request.parts:
                self._leave(request.parts[0])
                while request.parts:
                    self._forget(request.parts.popleft())
            # Collected under the lock, because each rerun of a failed batch replaces its `Cancellation`.
            cancellations = [batch.cancellation for batch in self._running if batch.is_done]
        for cancellation in cancellations:
            cancellation.cancel()

    def _stream(self) -> None:
        while batch := self._take():
            parts = batch.parts
            try:
                self._run(batch)
            except Exception:
                # The stream must continue with other requests after any error.
                _LOG.exception("running a batch failed")
                for part in parts:
                    fail(part, ServingError(Code.INTERNAL, "running a batch failed"))
            with self._changed:
                self._running.remove(batch)
                # Large rows may be waiting for the end of this batch, and other streams for an empty queue.
                self._changed.notify_all()
            # Frees the model and the outputs while the stream waits for work.
            del batch, parts

    def _take(self) -> _Batch | None:
        """Waits for the next batch; returns None once the batcher is closed and the queues are empty."""
        with self._changed:
            while True:
                if ready := [key for key in self._queues if self._may_run(key[1])]:
                    now = time.monotonic()
                    return self._next_batch(max(ready, key=lambda key: self._urgency(key, now)))
                if self._closed and not self._queues:
                    return None
                self._changed.wait()

    def _may_run(self, number: int) -> bool:
        """Returns whether a batch of this cost class may start now. The lock must be held."""
        large = sum(is_large(batch.key[1]) for batch in self._running)
        return not is_large(number) or large < self._num_streams - self._num_reserved

    def _urgency(self, key: Key, now: float) -> float:
        """Returns the urgency of the part at the head of a queue. The lock must be held."""
        part = self._queues[key][0]
        return urgency(part.queued, part.cost / part.rows if key[0].mergeable else part.cost, now)

    def _next_batch(self, key: Key) -> _Batch:
        """Takes a batch from a queue and queues the next parts of its requests. The lock must be held."""
        first, *candidates = itertools.islice(self._queues[key], _MAX_COMPARED)
        batch = _Batch(key, [first])
        rows, cost, row_cost = first.rows, first.cost, first.cost / first.rows
        # The sort is stable, so among equally similar parts the oldest comes first. Dissimilar parts wait until they
        # reach the head of the queue.
        for part in sorted(candidates, key=lambda part: abs(part.cost / part.rows - row_cost)):
            rows, cost = rows + part.rows, cost + part.cost
            if not key[0].mergeable or rows > self._max_batch_size or cost > self._max_batch_cost:
                break
            batch.parts.append(part)
        self._running.add(batch)
        for part in batch.parts:
            self._leave(part)
        for part in batch.parts:
            self._queue_next(part.request)
        return batch

    def _run(self, batch: _Batch) -> None:
        """Runs a batch; if it fails, reruns its parts one by one."""
        self._on_batch(sum(part.rows for part in batch.parts))
        began = time.monotonic()
        try:
            _answer(batch)
        except Exception as error:
            if len(batch.parts) == 1:
                fail(batch.parts[0], serving_error(error))
                return
            batch.retries = batch.parts
            for part in batch.retries:
                self._run_alone(batch, part)
        else:
            with self._changed:
                self.pace.measure(batch.key[1], sum(part.cost for part in batch.parts), time.monotonic() - began)

    def _run_alone(self, batch: _Batch, part: Part) -> None:
        """Reruns a single part of a failed batch, unless its request is already done or cancelled."""
        with self._changed:
            batch.parts, batch.cancellation = [part], Cancellation()
            if batch.is_done:
                return
        try:
            _answer(batch)
        except Exception as error:
            fail(part, serving_error(error))


def _answer(batch: _Batch) -> None:
    """Runs a batch and passes each part its rows of the outputs."""
    parts = batch.parts
    with batch.cancellation:
        outputs = batch.key[0].run(concatenated([part.inputs for part in parts]))
    ends = list(itertools.accumulate(part.rows for part in parts))
    if len(parts) > 1 or len(parts[0].request.outputs) > 1:
        check_rows(outputs, ends[-1])
    with waking_once():
        for part, end in zip(parts, ends, strict=True):
            succeed(part, rows_of(outputs, end - part.rows, end) if len(parts) > 1 else outputs)


def _stop_error() -> ServingError:
    return Busy("the server is stopping")


def _is_useless(future: Future) -> bool:
    """Returns whether a finished request was cancelled or has failed, so that its remaining parts need not run."""
    return future.cancelled() or future.exception() is not None

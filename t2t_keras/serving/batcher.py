"""Merges requests that arrive together: a bounded queue, and streams (threads) that take batches from it."""

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

from t2t_keras.serving.arrivals import together
from t2t_keras.serving.cancelling import Cancellation
from t2t_keras.serving.ordering import Pace, cost_class, is_large, urgency
from t2t_keras.serving.parts import Key, Part, Request, check_rows, concatenated, fail, rows_of, succeed
from t2t_keras.serving.request_errors import Busy, Code, ServingError, invalid, serving_error
from t2t_keras.serving.served_signatures import Arrays, Signature

_LOG = logging.getLogger(__name__)

# What a request that cannot be cut into parts may hold.
_MOST_BATCHES = 4

# Parts of a queue, from its head, of which those most like the first are chosen for its batch.
_COMPARED = 256


@dataclasses.dataclass(eq=False)
class _Batch:
    """What a stream runs: parts of one key, and what stops it."""

    key: Key
    parts: list[Part]
    cancellation: Cancellation = dataclasses.field(default_factory=Cancellation)

    @property
    def in_vain(self) -> bool:
        """Whether nobody waits for it any more."""
        return all(part.request.future.done() for part in self.parts)


class Batcher:
    """Runs requests in batches, one batch at a time in each stream (thread).

    A free stream runs what waits at once, and what comes while all are busy is merged; to wait for more made
    answers later, and no load faster. Rows of one signature and of similar cost are merged, because a batch takes
    as long as its longest row: with what came first goes what is most like it, and of several batches the most
    urgent one runs (`ordering.urgency`). Of two or more streams one is kept free of large rows. A request larger
    than a batch queues one part after another, so that requests take turns. If a batch fails, its requests are run
    one by one, so that each gets its own error. A batch that nobody waits for any more is stopped.

    Args:
        max_batch_size: most rows of a batch.
        max_batch_cost: most cost of a batch; a single row may exceed it.
        num_streams: batches that run in parallel.
        max_queue_cost: most cost of all waiting rows; a request that waits alone may exceed it.
        on_batch: called with the number of rows of each batch that runs.

    Attributes:
        pace: how long batches took.
    """

    def __init__(
        self,
        max_batch_size: int,
        max_batch_cost: int,
        num_streams: int,
        max_queue_cost: int,
        on_batch: Callable[[int], None] = lambda rows: None,
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
        """Queues a request and returns the future of its outputs.

        Cancelling the future drops the parts that have not begun, and stops those that run unless they run together
        with others that are waited for.

        Args:
            signature: what to run; its requests are merged, and cut into parts, only if it is mergeable.
            inputs: checked arrays by name.
            costs: int [rows], proportional to the work of each row; rows are the first dimension of the inputs.
            seconds: how long the client will wait; None for the rest of work that has begun, for which there is room.

        Raises:
            ServingError: the request is too large to be run whole, the queue is full or too slow, or the batcher is
                closed.
        """
        request = self._request(signature, inputs, costs)
        with self._changed:
            if self._closed:
                self._abandoned |= seconds is None
                raise _stopping()
            self._check_room(request, seconds)
            for part in request.parts:
                self._waiting += part.rows
                self._waiting_costs[part.key[1]] += part.cost
            self._queue_next(request)
        # Only after queueing, because a future that is already cancelled calls back at once. What waits or runs holds
        # the request; if its future did too, only the collector of cycles would free its answer.
        waiting = weakref.ref(request)
        request.future.add_done_callback(lambda future: self._drop(waiting()) if _in_vain(future) else None)
        return request.future

    def close(self, timeout: float) -> bool:
        """Refuses new requests, runs the waiting ones and ends the streams.

        Returns whether all of them ran within `timeout` seconds and none was abandoned; the remaining ones are.
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
        """Refuses new requests, and with an error all that wait or run; what runs is stopped."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            left = [part for queue in self._queues.values() for part in queue]
            left += [part for batch in self._running for part in batch.parts if not part.request.future.done()]
            self._abandoned |= bool(left)
        for part in left:
            fail(part, _stopping())

    def _request(self, signature: Signature, inputs: Arrays, costs: np.ndarray) -> Request:
        """Cuts a request into parts, each of rows of similar cost."""
        rows = len(costs)
        request = Request(Future(), None, collections.deque(), [])
        if signature.mergeable:
            kinds = np.array([cost_class(cost) for cost in costs.tolist()])
            order = np.argsort(costs, kind="stable")
            cuts = list(itertools.pairwise([*self._cuts(kinds[order], costs[order]), rows]))
        else:
            # As much work as if all rows were as long as the longest, to which they are padded.
            costs = np.full(rows, costs.max())
            self._check_whole(signature, rows, int(costs.sum()))
            kinds = np.full(rows, cost_class(int(costs.sum())))
            order, cuts = np.arange(rows), [(0, rows)]
        for index, (start, end) in enumerate(cuts):
            chosen = order[start:end]
            part_inputs = {name: array[chosen] for name, array in inputs.items()} if len(cuts) > 1 else inputs
            key = (signature, int(kinds[chosen].max()))
            request.parts.append(Part(request, index, part_inputs, end - start, int(costs[chosen].sum()), key))
        request.order = order if len(cuts) > 1 else None
        request.outputs = [None] * len(cuts)
        return request

    def _check_whole(self, signature: Signature, rows: int, cost: int) -> None:
        """Refuses a request that can only be run whole and is larger than some batches; a single row may be."""
        limit = _MOST_BATCHES * self._max_batch_cost
        if rows > 1 and cost > limit:
            raise invalid(
                f"{signature.name!r} is not run in parts, and {rows} sentences, padded to the longest, are {cost} "
                f"bytes with their overhead: the limit is {limit}, four times max_batch_bytes; send fewer at a time"
            )

    def _check_room(self, request: Request, seconds: float | None) -> None:
        """Refuses a request that the queue has no room for or that would wait for too long. The lock must be held."""
        if seconds is None or not self._waiting:
            return
        cost = sum(part.cost for part in request.parts)
        if self.waiting_cost + cost > self._max_queue_cost:
            raise Busy(
                f"the queue is full: {self._waiting} sentences wait, {self.waiting_cost} bytes with their "
                f"overhead, and {cost} more would be above max_queue_bytes={self._max_queue_cost}; try again later"
            )
        # What costs more lets it pass.
        number = max(part.key[1] for part in request.parts)
        before = {other: cost for other, cost in self._waiting_costs.items() if other <= number}
        streams = self._num_streams - (self._reserved if is_large(number) else 0)
        expected = self.pace.seconds(before) / streams
        if expected > seconds:
            raise Busy(
                f"the queue is too long: what waits will take some {expected:.0f} s, and this request has "
                f"{seconds:.0f} s; try again later",
                retry_seconds=math.ceil(expected - seconds),
            )

    @property
    def _reserved(self) -> int:
        """The number of streams that are kept free of large rows."""
        return 1 if self._num_streams > 1 else 0

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

    def _queue_next(self, request: Request) -> None:
        """Queues a request's next part behind those of other requests. The lock must be held."""
        if request.parts:
            part = request.parts[0]
            part.queued = time.monotonic()
            self._queues.setdefault(part.key, collections.deque()).append(part)
            self._changed.notify()

    def _leave(self, part: Part) -> None:
        """Takes a part out of its queue. The lock must be held."""
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
        """Drops the parts of a request that have not begun, if it still waits or runs, and stops what runs in vain."""
        with self._changed:
            if request and request.parts:
                self._leave(request.parts[0])
                while request.parts:
                    self._forget(request.parts.popleft())
            # Looked up now: a batch that fails meanwhile is run again for the others, with a cancellation of its own.
            in_vain = [batch.cancellation for batch in self._running if batch.in_vain]
        for cancellation in in_vain:
            cancellation.cancel()

    def _stream(self) -> None:
        while batch := self._take():
            parts = batch.parts
            try:
                self._run(batch)
            except Exception:
                # After any error the stream must go on with the other requests.
                _LOG.exception("running a batch failed")
                for part in parts:
                    fail(part, ServingError(Code.INTERNAL, "running a batch failed"))
            with self._changed:
                self._running.remove(batch)
                # Large rows may have waited for this end, and the other streams for that of the queue.
                self._changed.notify_all()
            # Frees the model and the answers while the stream waits for more.
            del batch, parts

    def _take(self) -> _Batch | None:
        """Waits for the next batch; returns None once the batcher is closed and nothing waits."""
        with self._changed:
            while True:
                if ready := [key for key in self._queues if self._may_run(key[1])]:
                    now = time.monotonic()
                    return self._next_batch(max(ready, key=lambda key: self._urgency(key, now)))
                if self._closed and not self._queues:
                    return None
                self._changed.wait()

    def _may_run(self, number: int) -> bool:
        """Whether a batch of this cost class may take another stream. The lock must be held."""
        large = sum(is_large(batch.key[1]) for batch in self._running)
        return not is_large(number) or large < self._num_streams - self._reserved

    def _urgency(self, key: Key, now: float) -> float:
        """How urgent the batch at the head of a queue is. The lock must be held."""
        part = self._queues[key][0]
        return urgency(part.queued, part.cost / part.rows if key[0].mergeable else part.cost, now)

    def _next_batch(self, key: Key) -> _Batch:
        """Takes a batch from a queue and queues the next parts of its requests."""
        first, *others = itertools.islice(self._queues[key], _COMPARED)
        batch = _Batch(key, [first])
        rows, cost, own = first.rows, first.cost, first.cost / first.rows
        # Of equal ones that which came first; what is unlike waits for a batch of which it is the first.
        for part in sorted(others, key=lambda part: abs(part.cost / part.rows - own)):
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
        """Runs a batch; if it fails, runs its requests one by one."""
        self._on_batch(sum(part.rows for part in batch.parts))
        began = time.monotonic()
        try:
            _answer(batch)
        except Exception as error:
            if len(batch.parts) == 1:
                fail(batch.parts[0], serving_error(error))
                return
            for part in batch.parts:
                self._run_alone(batch, part)
        else:
            with self._changed:
                self.pace.measure(batch.key[1], sum(part.cost for part in batch.parts), time.monotonic() - began)

    def _run_alone(self, batch: _Batch, part: Part) -> None:
        """Runs a part of a failed batch in its place, unless its request is already cancelled or answered."""
        with self._changed:
            batch.parts, batch.cancellation = [part], Cancellation()
            if batch.in_vain:
                return
        try:
            _answer(batch)
        except Exception as error:
            fail(part, serving_error(error))


def _answer(batch: _Batch) -> None:
    """Runs a batch and gives each part its rows of the outputs."""
    parts = batch.parts
    with batch.cancellation:
        outputs = batch.key[0].run(concatenated([part.inputs for part in parts]))
    ends = list(itertools.accumulate(part.rows for part in parts))
    if len(parts) > 1 or len(parts[0].request.outputs) > 1:
        check_rows(outputs, ends[-1])
    with together():
        for part, end in zip(parts, ends, strict=True):
            succeed(part, rows_of(outputs, end - part.rows, end) if len(parts) > 1 else outputs)


def _stopping() -> ServingError:
    return Busy("the server is stopping")


def _in_vain(future: Future) -> bool:
    """Whether a request was cancelled or one of its parts failed, so that the rest of it is useless."""
    return future.cancelled() or future.exception() is not None

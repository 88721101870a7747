"""Splits requests into parts, which wait in queues, and reassembles the outputs of the parts."""

import collections
import contextlib
import dataclasses
from concurrent.futures import Future, InvalidStateError

import numpy as np

from t2t_keras.serving.request_errors import Code, ServingError
from t2t_keras.serving.served_signatures import Arrays, Signature

# Parts with the same signature and cost class share a queue and may run in one batch.
Key = tuple[Signature, int]


@dataclasses.dataclass(eq=False)
class Request:
    """A request, split into one or more parts.

    Attributes:
        future: future of all outputs. Once it is done, no client is waiting for the request.
        order: int [rows]. Entry i is the row of the request that became row i of the concatenated parts; None if the
            order is unchanged.
        parts: parts that have not started. Only the first one is in a queue.
        outputs: outputs of each part, None until the part has run.
    """

    future: Future[Arrays]
    order: np.ndarray | None
    parts: collections.deque["Part"]
    outputs: list[Arrays | None]


@dataclasses.dataclass(eq=False)
class Part:
    """A piece of a request that fits into a batch. Most requests have a single part.

    Attributes:
        request: the request that the part belongs to.
        index: index of the part within the request.
        inputs: input arrays by name, restricted to the rows of the part.
        rows: number of rows.
        cost: total cost of the rows.
        key: signature and cost class, the key of the part's queue.
        queued: monotonic time, in seconds, at which the part was queued.
    """

    request: Request
    index: int
    inputs: Arrays
    rows: int
    cost: int
    key: Key
    queued: float = 0.0


def rows_of(arrays: Arrays, start: int, end: int) -> Arrays:
    """Returns rows `start` to `end` (exclusive) of each array."""
    return {name: array[start:end] for name, array in arrays.items()}


def concatenated(parts: list[Arrays]) -> Arrays:
    """Concatenates the rows of all parts."""
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def check_rows(outputs: Arrays, rows: int) -> None:
    """Raises a `ServingError` unless each output has one row per input row; rows could reach the wrong request."""
    for name, array in outputs.items():
        if array.shape[:1] != (rows,):
            raise ServingError(
                Code.FAILED_PRECONDITION,
                f"the output {name!r} has the shape {list(array.shape)} for {rows} rows: send this model no more rows "
                "than fit into one batch",
            )


def succeed(part: Part, outputs: Arrays) -> None:
    """Stores a part's outputs and completes the request if no other outputs are missing."""
    request = part.request
    request.outputs[part.index] = outputs
    # Two parts that finish at the same time may both see all outputs; the first to set the result wins.
    complete = [part_outputs for part_outputs in request.outputs if part_outputs is not None]
    if len(complete) == len(request.outputs):
        answer = concatenated(complete)
        if request.order is not None:
            back = np.argsort(request.order)
            answer = {name: array[back] for name, array in answer.items()}
        with contextlib.suppress(InvalidStateError):
            request.future.set_result(answer)


def fail(part: Part, error: ServingError) -> None:
    """Fails a part's request with an error, unless the request is already done."""
    with contextlib.suppress(InvalidStateError):
        part.request.future.set_exception(error)

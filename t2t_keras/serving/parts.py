"""Requests cut into parts, which wait in queues, and the outputs of parts put together again."""

import collections
import contextlib
import dataclasses
from concurrent.futures import Future, InvalidStateError

import numpy as np

from t2t_keras.serving.request_errors import Code, ServingError
from t2t_keras.serving.served_signatures import Arrays, Signature

# What waits and runs together: a signature and a cost class.
Key = tuple[Signature, int]


@dataclasses.dataclass(eq=False)
class Request:
    """A request, cut into one part or several.

    Attributes:
        future: the future of all outputs; once it is done, nobody waits for the request any more.
        order: int [rows], the row of the request that each row of its parts is; None if the order is the same.
        parts: the parts that have not begun, of which only the first is in a queue.
        outputs: the outputs of each part, None until it has run.
    """

    future: Future[Arrays]
    order: np.ndarray | None
    parts: collections.deque["Part"]
    outputs: list[Arrays | None]


@dataclasses.dataclass(eq=False)
class Part:
    """As much of a request as fits into a batch; most requests are one part.

    Attributes:
        request: the request that it belongs to.
        index: its index among the request's parts.
        inputs: arrays of its rows, by name.
        rows: number of its rows.
        cost: sum of its rows' costs.
        key: signature and cost class, the key of its queue.
        queued: the time at which it was queued, behind what other requests had queued until then.
    """

    request: Request
    index: int
    inputs: Arrays
    rows: int
    cost: int
    key: Key
    queued: float = 0.0


def rows_of(arrays: Arrays, start: int, end: int) -> Arrays:
    """The rows from `start` to before `end` of each array."""
    return {name: array[start:end] for name, array in arrays.items()}


def concatenated(parts: list[Arrays]) -> Arrays:
    """The rows of all parts, one part after another."""
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def check_rows(outputs: Arrays, rows: int) -> None:
    """Raises a `ServingError` unless each output has one row per input row: rows must not reach the wrong request."""
    for name, array in outputs.items():
        if array.shape[:1] != (rows,):
            raise ServingError(
                Code.FAILED_PRECONDITION,
                f"the output {name!r} has the shape {list(array.shape)} for {rows} rows: ask this model for no more "
                "rows at once than fit into a batch",
            )


def succeed(part: Part, outputs: Arrays) -> None:
    """Notes a part's outputs, and answers its request if they were the last that were missing."""
    request = part.request
    request.outputs[part.index] = outputs
    # Two parts that end at the same time may both see all outputs; the first to set the result wins.
    complete = [part_outputs for part_outputs in request.outputs if part_outputs is not None]
    if len(complete) == len(request.outputs):
        answer = concatenated(complete)
        if request.order is not None:
            back = np.argsort(request.order)
            answer = {name: array[back] for name, array in answer.items()}
        with contextlib.suppress(InvalidStateError):
            request.future.set_result(answer)


def fail(part: Part, error: ServingError) -> None:
    """Answers a part's request with an error, unless it is answered already."""
    with contextlib.suppress(InvalidStateError):
        part.request.future.set_exception(error)

"""Responses of the REST interface: JSON, errors, and large bodies, which are streamed and compressed."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from typing import Any, TypeVar, cast

from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from t2t_keras.serving.answers import LARGE_BYTES
from t2t_keras.serving.core import Core
from t2t_keras.serving.http.bodies import disconnection_error
from t2t_keras.serving.request_errors import Busy, Code, ServingError, TooLarge, serving_error

_Outputs = TypeVar("_Outputs")
# Handles a request and returns the response.
Handler = Callable[[Request], Coroutine[Any, Any, ASGIApp]]

_LOG = logging.getLogger(__name__)

# TensorFlow Serving's status codes.
STATUS = {
    Code.CANCELLED: 499,
    Code.INVALID_ARGUMENT: 400,
    Code.DEADLINE_EXCEEDED: 504,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.PERMISSION_DENIED: 403,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.FAILED_PRECONDITION: 400,
    Code.ABORTED: 409,
    Code.OUT_OF_RANGE: 400,
    Code.UNIMPLEMENTED: 501,
    Code.UNAVAILABLE: 503,
    Code.UNAUTHENTICATED: 401,
}

# Minimum size of a compressed response, in bytes, and gzip's level. All connections share one thread, so the fastest
# level is used: it compresses 1 MB of numbers to 0.42 MB in 37 ms, the slowest level to 0.36 MB in 950 ms.
_COMPRESSED_BYTES = 1 << 10
_COMPRESSION = 1


class Streamed(StreamingResponse):
    """A response whose body is generated while it is sent.

    Attributes:
        ends: callbacks that run once the response is sent or abandoned.
    """

    def __init__(
        self, pieces: Iterator[bytes] | AsyncGenerator[bytes, None], kind: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(pieces, headers=headers, media_type=kind)
        self.ends = contextlib.AsyncExitStack()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self.ends:
            await super().__call__(scope, receive, send)


async def wait_for_outputs(request: Request, outputs: Coroutine[Any, Any, _Outputs]) -> _Outputs:
    """Waits for the outputs of a call, and cancels the call if the client disconnects first."""
    task, disconnection = cast(asyncio.Task, asyncio.current_task()), request.scope["state"]["gone"]
    waits = True

    def give_up(disconnection: asyncio.Future) -> None:
        # The callback may already be scheduled when the outputs arrive.
        if waits:
            task.cancel()

    disconnection.add_done_callback(give_up)
    try:
        return await outputs
    except asyncio.CancelledError:
        # Otherwise the server is stopping, which must cancel the task.
        if disconnection.done() and not task.uncancel():
            raise disconnection_error() from None
        raise
    finally:
        waits = False
        disconnection.remove_done_callback(give_up)


def answer_errors(handle: Handler) -> Handler:
    """Wraps a handler so that errors become responses."""

    async def answer(request: Request) -> ASGIApp:
        try:
            return await handle(request)
        except asyncio.CancelledError:
            # The server's grace period is over.
            return error_message(503, "the server is stopping", {"Connection": "close"})
        except TooLarge as error:
            return error_message(413, str(error), {"Connection": "close"})
        except Exception as error:
            # Not assigned to a variable: the traceback refers to this frame, so the cycle would keep objects alive.
            return error_response(request, serving_error(error))

    return answer


def data_response(core: Core, pieces: Iterator[bytes], size: int) -> ASGIApp:
    """Returns a response of encoded JSON; a large one counts as unsent until the client has read it.

    Args:
        core: counts the bytes.
        pieces: the response.
        size: approximate size of the data in memory, in bytes.

    Raises:
        Busy: too many bytes are unsent.
    """
    if size <= LARGE_BYTES:
        return json_response(b"".join(pieces))
    large = Streamed(pieces, "application/json")
    large.ends.callback(core.unsent.add(size))
    return compress(large)


def compress(answer: ASGIApp) -> ASGIApp:
    """Wraps an application so that it compresses its responses for clients that accept gzip."""
    return GZipMiddleware(answer, _COMPRESSED_BYTES, _COMPRESSION)


def json_response(content: bytes, status: int = 200) -> ASGIApp:
    """Returns a response of encoded JSON, compressed if it is large enough."""
    answer = Response(content, status, media_type="application/json")
    # Most responses are small. The middleware would need as much time to detect this as parsing the request takes.
    return answer if len(content) < _COMPRESSED_BYTES else compress(answer)


def json_message(content: dict, status: int = 200) -> ASGIApp:
    """Returns an object as indented JSON."""
    return json_response(json.dumps(content, indent=1).encode("utf-8") + b"\n", status)


def error_response(request: Request, error: ServingError) -> Response:
    """Returns the response for an error, and logs errors of the server itself."""
    if error.code is Code.INTERNAL:
        _LOG.error("%s %s: %s", request.method, request.url.path, error.message, exc_info=error.__cause__)
    headers = {"Retry-After": str(error.retry_seconds)} if isinstance(error, Busy) else None
    return error_message(STATUS.get(error.code, 500), error.message, headers)


def error_message(status: int, message: str, headers: Mapping[str, str] | None) -> Response:
    """Returns a response with the body {"error": message}."""
    return Response(error_content(message), status, headers, "application/json")


def error_content(message: str) -> bytes:
    """Returns the body of an error."""
    return json.dumps({"error": message}, ensure_ascii=False).encode("utf-8", "replace")

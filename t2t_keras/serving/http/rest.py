"""TensorFlow Serving's REST interface, the Prometheus metrics, and the web page at "/".

Reference: https://www.tensorflow.org/tfx/serving/api_rest
"""

import asyncio
import contextlib
import json
import logging
import pathlib
import re
import urllib.parse
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any, TypeVar, cast

from google.protobuf import json_format
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from t2t_keras.serving import off_loop
from t2t_keras.serving.access import ApiKeys, KeyCheck
from t2t_keras.serving.answers import LARGE_BYTES, memory_of
from t2t_keras.serving.core import Core
from t2t_keras.serving.growing import Growing
from t2t_keras.serving.http import json_tensors, openapi
from t2t_keras.serving.http.bodies import client_is_gone, read_body
from t2t_keras.serving.http.glossed import Glossaries, GlossedCall
from t2t_keras.serving.http.hosts import HostCheck
from t2t_keras.serving.http.marked import MarkedCall, ReadDocuments
from t2t_keras.serving.metrics import Call
from t2t_keras.serving.protected import FIELDS, Protections, protected_call
from t2t_keras.serving.refusals import Reason, address
from t2t_keras.serving.request_errors import Busy, Code, ServingError, TooLarge, invalid, serving_error
from t2t_keras.serving.rounds import Rounds
from t2t_keras.serving.served_models import DEFAULT_SIGNATURE
from t2t_keras.serving.served_signatures import Arrays

_Outputs = TypeVar("_Outputs")

_LOG = logging.getLogger(__name__)

_PAGE = pathlib.Path(__file__).parents[1] / "page"
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # The page is updated with the server, so browsers must revalidate it.
    "Cache-Control": "no-cache",
    "Accept-Ranges": "none",
}

# Without these headers, proxies such as nginx buffer events.
_EVENT_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

# TensorFlow Serving's status codes.
_STATUS = {
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

_MODEL = r"/v1/models/(?P<name>[^/:]+)(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
_POST = re.compile(_MODEL + r":(?P<method>classify|regress|predict|stream)", re.IGNORECASE | re.ASCII)
_GET = re.compile(_MODEL + r"(?:/(?P<metadata>metadata))?", re.IGNORECASE | re.ASCII)

# Minimum size of a compressed response, in bytes, and gzip's level. All connections share one thread, so the fastest
# level is used: it compresses 1 MB of numbers to 0.42 MB in 37 ms, the slowest level to 0.36 MB in 950 ms.
_COMPRESSED_BYTES = 1 << 10
_COMPRESSION = 1


def rest_app(
    core: Core,
    keys: ApiKeys | None = None,
    read: ReadDocuments | None = None,
    glossaries: Glossaries | None = None,
    protections: Protections | None = None,
) -> Starlette:
    """Returns the REST interface as an ASGI application.

    Args:
        core: runs the requests.
        keys: accepted API keys; None disables the check.
        read: parses documents with markup; None if they are not supported.
        glossaries: applies glossaries; None if they are not supported.
        protections: protects spans of texts; None if this is not supported.
    """
    service = _Rest(core, read, glossaries, protections)
    routes: list[BaseRoute] = [
        Route("/monitoring/prometheus/metrics", service.metrics, methods=["GET"]),
        Route("/healthz", service.health, methods=["GET"]),
        Route("/openapi.json", service.openapi, methods=["GET"]),
        Route("/server.json", service.description, methods=["GET"]),
    ]
    if _PAGE.is_dir():
        routes.append(Mount("/", _compress(_Page(directory=_PAGE, html=True))))
    options = core.options
    return Starlette(
        routes=routes,
        middleware=[
            Middleware(HostCheck, host=options.host, allowed_hosts=options.allowed_hosts, refusals=core.refusals),
            *([Middleware(KeyCheck, keys=keys, refusals=core.refusals)] if keys else []),
            Middleware(_Models, answer=service.model),
        ],
        exception_handlers={HTTPException: cast(Any, service.refused), Exception: service.failed},
    )


class _Models:
    """Middleware that handles all paths under /v1, because Starlette's routing would take as long as the handler.

    Args:
        app: the application that handles other paths.
        answer: handles a request and returns the response.
    """

    def __init__(self, app: ASGIApp, answer: Callable[[Request], Awaitable[ASGIApp]]) -> None:
        self._app, self._answer = app, answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].startswith("/v1/"):
            answer = await self._answer(Request(scope, receive))
            await answer(scope, receive, send)
        else:
            await self._app(scope, receive, send)


class _Rest:
    """The handlers of the routes and of all paths under /v1."""

    def __init__(
        self,
        core: Core,
        read: ReadDocuments | None,
        glossaries: Glossaries | None,
        protections: Protections | None,
    ) -> None:
        self._core, self._read, self._glossaries, self._protections = core, read, glossaries, protections

    async def model(self, request: Request) -> ASGIApp:
        """Handles a path under /v1; errors become responses."""
        try:
            # The undecoded path, because a percent-encoded "/" or ":" is part of a name.
            path = request.scope.get("raw_path", b"").decode("latin-1").split("?", 1)[0]
            if request.method == "POST" and (match := _POST.fullmatch(path)):
                target = _Target(match)
                return await (self._stream if target.method == "stream" else self._call)(request, target)
            with self._core.refusals.counted("rest", address(request.client)):
                if request.method in ("GET", "HEAD") and (match := _GET.fullmatch(path)):
                    return self._state(_Target(match))
                raise invalid(f"Malformed request: {request.method} {path}")
        except asyncio.CancelledError:
            # The server's grace period is over.
            return _error(503, "the server is stopping", {"Connection": "close"})
        except TooLarge as error:
            return _error(413, str(error), {"Connection": "close"})
        except Exception as error:
            # Not assigned to a variable: the traceback refers to this frame, so the cycle would keep objects alive.
            return _error_response(request, serving_error(error))

    async def refused(self, request: Request, error: HTTPException) -> Response:
        """Answers 404 and 405 in the common error format."""
        self._core.refusals.add("rest", Reason.REQUEST, address(request.client))
        refusal = ServingError(Code.NOT_FOUND, f"{error.detail}: {request.method} {request.url.path}")  # truncates it
        return _error(error.status_code, refusal.message, error.headers)

    async def failed(self, request: Request, error: Exception) -> Response:
        """Answers an unexpected exception in the common error format; the traceback is logged."""
        # uvicorn closes the connection after such an error; the header tells the client not to reuse it.
        return _error(500, serving_error(error).message, {"Connection": "close"})

    async def health(self, request: Request) -> Response:
        """Reports that the server is alive, regardless of its models."""
        return Response("ok\n", media_type="text/plain")

    async def metrics(self, request: Request) -> ASGIApp:
        return _compress(Response(self._core.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8"))

    async def openapi(self, request: Request) -> ASGIApp:
        return _json(json.dumps(openapi.described(self._core.models.names)).encode("utf-8"))

    async def description(self, request: Request) -> ASGIApp:
        """Returns a description of the server, for the web page at "/"."""
        limits = self._core.options.limits
        about: dict[str, Any] = {
            "model": self._core.models.names[0],
            "version": self._core.models.first.served,
            "max_sentences": limits.max_sentences,
            "max_sentence_bytes": limits.max_sentence_bytes,
        }
        # The languages and the task are unknown until a version is loaded.
        with contextlib.suppress(ServingError), self._core.lend(about["model"], None) as loan:
            about |= loan.model.about
        return _json(json.dumps(about).encode("utf-8"))

    def _state(self, target: "_Target") -> ASGIApp:
        """Returns the status of a model or its signatures."""
        if not target.metadata:
            versions = self._core.models.get(target.name)
            if versions and target.version is None and not versions.statuses():
                return _json_message({"model_version_status": []}, 503)
            status = self._core.status(target.name, target.version)
            content = json_format.MessageToDict(status, always_print_fields_with_no_presence=True)
            # TensorFlow Serving opens its port only once a version is available, so probes must fail here until then.
            is_ready = target.version is not None or versions and versions.served is not None
            return _json_message(content, 200 if is_ready else 503)
        with self._core.lend(target.name, target.version) as loan:
            signatures = json_format.MessageToDict(
                loan.model.signature_defs, always_print_fields_with_no_presence=True, preserving_proto_field_name=True
            )
            spec = {"name": target.name, "signature_name": "", "version": str(loan.model.version)}
        return _json_message({"model_spec": spec, "metadata": {"signature_def": signatures}})

    async def _call(self, request: Request, target: "_Target") -> ASGIApp:
        with self._core.metrics.request("rest", target.method.capitalize()) as call:
            if self._core.models.get(target.name):
                call.model = target.name
            if target.method != "predict":
                raise ServingError(Code.UNIMPLEMENTED, f"{target.method} is not supported, only predict")
            body = await read_body(request, self._core.options.limits.max_body_bytes)
            call.is_read()
            # These fields need slow preparation, which runs in a thread. JSON escapes (\u) may also spell their names.
            if any(name in body for name in (b'"markup"', b'"glossary"', b"\\u")):
                answer, by_row = await asyncio.to_thread(self._begin, call, target, body)
            else:
                answer, by_row = await off_loop.run(len(body), self._begin, call, target, body)
            outputs = await _wait_for_outputs(request, answer())
            pieces = json_tensors.write_outputs(outputs, by_row)
            size = memory_of(outputs)
            if size <= LARGE_BYTES:
                return _json(b"".join(pieces))
            large = _Streamed(pieces, "application/json")
            large.ends.callback(self._core.unsent.add(size))
            return _compress(large)

    async def _stream(self, request: Request, target: "_Target") -> Response:
        """Streams the output for a text as server-sent events; errors before the first event have an HTTP status."""
        with contextlib.ExitStack() as ends:
            call = ends.enter_context(self._core.metrics.request("rest", "Stream"))
            if self._core.models.get(target.name):
                call.model = target.name
            body = await read_body(request, self._core.options.limits.max_body_bytes)
            call.is_read()
            growing, by_row = await off_loop.run(len(body), self._grow, call, target, body)
            ends.callback(growing.close)
            first = await _wait_for_outputs(request, growing.turn())
            callbacks = ends.pop_all()
            events = _events(growing, first, by_row, callbacks)
            response = _Streamed(events, "text/event-stream", _EVENT_HEADERS)
            response.ends.callback(callbacks.close)
            response.ends.push_async_callback(events.aclose)
            return response

    def _grow(self, call: Call, target: "_Target", body: bytes) -> tuple["Growing | _OneTurn", bool]:
        """Like `_begin`, but for a stream."""
        content = json_tensors.parse_body(body)
        with self._core.lend(target.name, target.version) as loan:
            if content.get("signature_name", DEFAULT_SIGNATURE) not in ("", DEFAULT_SIGNATURE):
                raise invalid(f"only answers of {DEFAULT_SIGNATURE!r} can be streamed; omit 'signature_name'")
            call.signature = "stream"
            if "markup" in content:
                raise invalid("documents with markup cannot be streamed; use predict")
            if "glossary" in content:
                raise invalid("translations with a glossary cannot be streamed; use predict")
            signature = loan.model.signature(DEFAULT_SIGNATURE)
            inputs = json_tensors.read_inputs(content, signature)
            if len(inputs.get("text", ())) == 1:
                rounds = protected_call(self._core, loan, signature, inputs, self._protections, content)
                if rounds:
                    return _OneTurn(rounds), "instances" in content
            return self._core.grow(loan, inputs), "instances" in content

    def _begin(
        self, call: Call, target: "_Target", body: bytes
    ) -> tuple[Callable[[], Coroutine[Any, Any, Arrays]], bool]:
        """Parses a body and queues its call.

        Returns:
            Coroutine function that waits for the outputs, and whether the request has "instances" (row format).
        """
        content = json_tensors.parse_body(body)
        with self._core.lend(target.name, target.version) as loan:
            if "glossary" in content:
                if names := [name for name in FIELDS if name in content]:
                    raise invalid(f"{names[0]!r} cannot be combined with a glossary")
                call.signature = "glossary"
                return GlossedCall(self._core, loan, content, self._glossaries).outputs, "instances" in content
            if "markup" in content:
                call.signature = "markup"
                marked = MarkedCall(self._core, loan, content, self._read, self._protections)
                return marked.outputs, "instances" in content
            if "markup_attributes" in content:
                raise invalid("'markup_attributes' needs 'markup'")
            signature = loan.model.signature(content.get("signature_name", ""))
            call.signature = signature.name
            inputs = json_tensors.read_inputs(content, signature)
            rounds = protected_call(self._core, loan, signature, inputs, self._protections, content)
            if rounds:
                return rounds.outputs, "instances" in content
            future = self._core.submit(loan, signature, inputs)
            return lambda: self._core.outputs(future), "instances" in content


class _OneTurn:
    """A stream whose only turn is a complete answer, because its text must be complete to put spans back."""

    def __init__(self, rounds: Rounds) -> None:
        self._rounds = rounds

    async def turn(self) -> tuple[Arrays, bool]:
        return await self._rounds.outputs(), True

    def close(self) -> None:
        self._rounds.cancel()


class _Target:
    """The model, version (number or label) and method in a path.

    Raises:
        ServingError: the version number does not fit into a signed 64-bit integer.
    """

    def __init__(self, match: re.Match) -> None:
        groups = match.groupdict()
        # Special characters in names are percent-encoded.
        self.name = urllib.parse.unquote(groups["name"])
        self.method = (groups.get("method") or "").lower()
        self.metadata = bool(groups.get("metadata"))
        self.version: int | str | None = None
        if groups["version"]:
            # The length is checked first, because Python refuses to convert strings of thousands of digits.
            self.version = int(groups["version"]) if len(groups["version"]) < 20 else 1 << 63
            if self.version >= 1 << 63:
                raise invalid(f"Failed to convert version: {groups['version'][:40]} to numeric.")
        elif groups["label"]:
            self.version = urllib.parse.unquote(groups["label"])


class _Streamed(StreamingResponse):
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


async def _events(
    growing: Growing | _OneTurn, turn: tuple[Arrays, bool], by_row: bool, ends: contextlib.ExitStack
) -> AsyncGenerator[bytes, None]:
    """Yields an event whenever the text has changed, then "end" with the final outputs, or "error".

    The data of the last event is the body that `predict` would send.
    """
    last_texts: list[Any] = []
    try:
        with ends:
            outputs, is_last = turn
            while not is_last:
                texts = [array.tolist() for array in outputs.values() if array.dtype == object]
                if texts != last_texts:
                    yield _event(json_tensors.write_outputs(outputs, by_row))
                    last_texts = texts
                outputs, is_last = await growing.turn()
            yield _event(json_tensors.write_outputs(outputs, by_row), "end")
    except ServingError as error:
        yield _event([_error_content(error.message)], "error")


def _event(data: Iterable[bytes], name: str = "") -> bytes:
    """Encodes a server-sent event. The JSON data needs no escaping, because it contains no line breaks."""
    return b"".join([f"event: {name}\n".encode() if name else b"", b"data: ", *data, b"\n\n"])


class _Page(StaticFiles):
    """The files of the web page, with headers that forbid loading content from other sites."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        # Ranges are ignored, as HTTP permits, because Starlette answers invalid ranges in plain text instead of JSON.
        scope["headers"] = [header for header in scope["headers"] if header[0] != b"range"]
        response = await super().get_response(path, scope)
        response.headers.update(_PAGE_HEADERS)
        return response


async def _wait_for_outputs(request: Request, outputs: Coroutine[Any, Any, _Outputs]) -> _Outputs:
    """Waits for the outputs of a call, and cancels the call if the client disconnects first."""
    task, disconnection = cast(asyncio.Task, asyncio.current_task()), request.scope["state"]["gone"]
    waits = True

    def give_up(disconnection: asyncio.Future) -> None:
        # This callback may already be scheduled when the outputs arrive.
        if waits:
            task.cancel()

    disconnection.add_done_callback(give_up)
    try:
        return await outputs
    except asyncio.CancelledError:
        # Otherwise the server is stopping, which must cancel the task.
        if disconnection.done() and not task.uncancel():
            raise client_is_gone() from None
        raise
    finally:
        waits = False
        disconnection.remove_done_callback(give_up)


def _compress(answer: ASGIApp) -> ASGIApp:
    """Wraps an application so that it compresses its responses for clients that accept gzip."""
    return GZipMiddleware(answer, _COMPRESSED_BYTES, _COMPRESSION)


def _json(content: bytes, status: int = 200) -> ASGIApp:
    answer = Response(content, status, media_type="application/json")
    # Most responses are small, and the middleware takes as long to find that out as parsing the request takes.
    return answer if len(content) < _COMPRESSED_BYTES else _compress(answer)


def _json_message(content: dict, status: int = 200) -> ASGIApp:
    return _json(json.dumps(content, indent=1).encode("utf-8") + b"\n", status)


def _error_response(request: Request, error: ServingError) -> Response:
    if error.code is Code.INTERNAL:
        _LOG.error("%s %s: %s", request.method, request.url.path, error.message, exc_info=error.__cause__)
    headers = {"Retry-After": str(error.retry_seconds)} if isinstance(error, Busy) else None
    return _error(_STATUS.get(error.code, 500), error.message, headers)


def _error(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    return Response(_error_content(message), status, headers, "application/json")


def _error_content(message: str) -> bytes:
    return json.dumps({"error": message}, ensure_ascii=False).encode("utf-8", "replace")

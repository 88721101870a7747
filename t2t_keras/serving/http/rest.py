"""TensorFlow Serving's REST interface, the Prometheus metrics, and the web page at "/".

Reference: https://www.tensorflow.org/tfx/serving/api_rest
"""

import contextlib
import functools
import json
import pathlib
import re
import sys
import urllib.parse
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from typing import Any, cast

from google.protobuf import json_format
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from t2t_keras.serving import off_loop
from t2t_keras.serving.access import ApiKeys, KeyCheck
from t2t_keras.serving.answers import memory_of
from t2t_keras.serving.core import Core
from t2t_keras.serving.http import json_tensors, openapi
from t2t_keras.serving.http.bodies import read_body
from t2t_keras.serving.http.fields import Calls, OneTurn, QueuedCall, RequestField
from t2t_keras.serving.http.hosts import HostCheck
from t2t_keras.serving.http.responses import (
    Streamed,
    answer_errors,
    compress,
    data_response,
    error_content,
    error_message,
    json_message,
    json_response,
    wait_for_outputs,
)
from t2t_keras.serving.libretranslate.translation_api import TranslationApi
from t2t_keras.serving.metrics import Call
from t2t_keras.serving.refusals import Reason, address
from t2t_keras.serving.request_errors import Code, ServingError, invalid, serving_error
from t2t_keras.serving.served_signatures import Arrays
from t2t_keras.serving.translation_stream import TranslationStream

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

_MODEL = r"/v1/models/(?P<name>[^/:]+)(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
_POST = re.compile(_MODEL + r":(?P<method>classify|regress|predict|stream)", re.IGNORECASE | re.ASCII)
_GET = re.compile(_MODEL + r"(?:/(?P<metadata>metadata))?", re.IGNORECASE | re.ASCII)


def rest_app(core: Core, keys: ApiKeys | None, fields: Sequence[RequestField]) -> Starlette:
    """Returns the REST interface as an ASGI application.

    Args:
        core: runs the requests.
        keys: accepted API keys; None disables the check.
        fields: the optional fields of requests.
    """
    calls = Calls(core, fields)
    service = _Rest(core, calls)
    routes: list[BaseRoute] = [
        Route("/monitoring/prometheus/metrics", service.metrics, methods=["GET"]),
        Route("/healthz", service.health, methods=["GET"]),
        Route("/openapi.json", service.openapi, methods=["GET"]),
        Route("/server.json", service.description, methods=["GET"]),
        *TranslationApi(core, calls, keys).routes,
    ]
    if _PAGE.is_dir():
        routes.append(Mount("/", compress(_Page(directory=_PAGE, html=True))))
    options = core.options
    return Starlette(
        routes=routes,
        middleware=[
            Middleware(HostCheck, host=options.host, allowed_hosts=options.allowed_hosts, refusals=core.refusals),
            *([Middleware(KeyCheck, keys=keys, refusals=core.refusals)] if keys else []),
            Middleware(_Models, answer=answer_errors(service.model)),
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

    def __init__(self, core: Core, calls: Calls) -> None:
        self._core, self._calls = core, calls

    async def model(self, request: Request) -> ASGIApp:
        """Handles a path under /v1."""
        # The undecoded path, because a percent-encoded "/" or ":" is part of a name.
        path = request.scope.get("raw_path", b"").decode("latin-1").split("?", 1)[0]
        if request.method == "POST" and (match := _POST.fullmatch(path)):
            target = _Target(match)
            return await (self._stream if target.method == "stream" else self._call)(request, target)
        with self._core.refusals.counted("rest", address(request.client)):
            if request.method in ("GET", "HEAD") and (match := _GET.fullmatch(path)):
                return self._state(_Target(match))
            raise invalid(f"Malformed request: {request.method} {path}")

    async def refused(self, request: Request, error: HTTPException) -> Response:
        """Answers 404 and 405 in the common error format."""
        self._core.refusals.add("rest", Reason.REQUEST, address(request.client))
        refusal = ServingError(Code.NOT_FOUND, f"{error.detail}: {request.method} {request.url.path}")  # truncates it
        return error_message(error.status_code, refusal.message, error.headers)

    async def failed(self, request: Request, error: Exception) -> Response:
        """Answers an unexpected exception in the common error format; the traceback is logged."""
        # uvicorn closes the connection after such an error; the header tells the client not to reuse it.
        return error_message(500, serving_error(error).message, {"Connection": "close"})

    async def health(self, request: Request) -> Response:
        """Reports that the server is alive, regardless of its models."""
        return Response("ok\n", media_type="text/plain")

    async def metrics(self, request: Request) -> ASGIApp:
        return compress(Response(self._core.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8"))

    async def openapi(self, request: Request) -> ASGIApp:
        return json_response(json.dumps(openapi.describe(self._core.models.names, self._calls.fields)).encode("utf-8"))

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
        return json_response(json.dumps(about).encode("utf-8"))

    def _state(self, target: "_Target") -> ASGIApp:
        """Returns the status of a model or its signatures."""
        if not target.metadata:
            versions = self._core.models.get(target.name)
            if versions and target.version is None and not versions.statuses():
                return json_message({"model_version_status": []}, 503)
            status = self._core.status(target.name, target.version)
            content = json_format.MessageToDict(status, always_print_fields_with_no_presence=True)
            # TensorFlow Serving opens its port only once a version is available, so probes must fail here until then.
            is_ready = target.version is not None or versions and versions.served is not None
            return json_message(content, 200 if is_ready else 503)
        with self._core.lend(target.name, target.version) as loan:
            signatures = json_format.MessageToDict(
                loan.model.signature_defs, always_print_fields_with_no_presence=True, preserving_proto_field_name=True
            )
            spec = {"name": target.name, "signature_name": "", "version": str(loan.model.version)}
        return json_message({"model_spec": spec, "metadata": {"signature_def": signatures}})

    async def _call(self, request: Request, target: "_Target") -> ASGIApp:
        with self._core.metrics.request("rest", target.method.capitalize()) as call:
            if self._core.models.get(target.name):
                call.model = target.name
            if target.method != "predict":
                raise ServingError(Code.UNIMPLEMENTED, f"{target.method} is not supported, only predict")
            body = await read_body(request, self._core.options.limits.max_body_bytes)
            call.restart_clock()
            begin = functools.partial(self._begin, call, target, body)
            queued, by_row = await off_loop.run(self._work(body), begin, give_up=lambda begun: begun[0].give_up())
            outputs = await wait_for_outputs(request, queued.result())
            return data_response(self._core, json_tensors.write_outputs(outputs, by_row), memory_of(outputs))

    async def _stream(self, request: Request, target: "_Target") -> Response:
        """Streams the output for a text as server-sent events; errors before the first event have an HTTP status."""
        with contextlib.ExitStack() as ends:
            call = ends.enter_context(self._core.metrics.request("rest", "Stream"))
            if self._core.models.get(target.name):
                call.model = target.name
            body = await read_body(request, self._core.options.limits.max_body_bytes)
            call.restart_clock()
            begin = functools.partial(self._begin_stream, call, target, body)
            stream, by_row = await off_loop.run(self._work(body), begin, give_up=lambda begun: begun[0].close())
            ends.callback(stream.close)
            first = await wait_for_outputs(request, stream.turn())
            callbacks = ends.pop_all()
            events = _events(stream, first, by_row, callbacks)
            response = Streamed(events, "text/event-stream", _EVENT_HEADERS)
            response.ends.callback(callbacks.close)
            response.ends.push_async_callback(events.aclose)
            return response

    def _work(self, body: bytes) -> int:
        """Returns the size of a body for `off_loop.run`; optional fields may need slow preparation in a thread."""
        return sys.maxsize if self._calls.may_have_field(body) else len(body)

    def _begin_stream(self, call: Call, target: "_Target", body: bytes) -> tuple[TranslationStream | OneTurn, bool]:
        """Like `_begin`, but for a stream."""
        content = json_tensors.parse_body(body)
        with self._core.lend(target.name, target.version) as loan:
            return self._calls.begin_stream(call, loan, content), "instances" in content

    def _begin(self, call: Call, target: "_Target", body: bytes) -> tuple[QueuedCall, bool]:
        """Parses a body and queues its call; also returns whether the request has "instances" (row format)."""
        content = json_tensors.parse_body(body)
        with self._core.lend(target.name, target.version) as loan:
            return self._calls.begin(call, loan, content), "instances" in content


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


async def _events(
    stream: TranslationStream | OneTurn, turn: tuple[Arrays, bool], by_row: bool, ends: contextlib.ExitStack
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
                outputs, is_last = await stream.turn()
            yield _event(json_tensors.write_outputs(outputs, by_row), "end")
    except ServingError as error:
        yield _event([error_content(error.message)], "error")


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

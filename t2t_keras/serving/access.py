"""Access control: API keys that requests must carry, and TLS certificates of the ports."""

import hashlib
import hmac
import json
import pathlib
import re
import ssl
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NoReturn

import grpc
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from t2t_keras.errors import InputError, explained
from t2t_keras.serving.refusals import Reason, Refusals, address

# These requests need no key: probes of liveness, readiness and model status, and queries of the languages, which
# clients of LibreTranslate send without a key.
_OPEN_PATH = re.compile(
    r"/healthz|/health|/languages|/frontend/settings|/v1/models/[^/:]+(?:/versions/\d+|/labels/[^/:]+)?", re.ASCII
)
# Their handlers check the key, which may be in the body.
_PATHS_WITH_KEY_IN_BODY = ("/translate", "/detect")
_OPEN_METHODS = ("/grpc.health.v1.Health/", "/tensorflow.serving.ModelService/GetModelStatus")

_REFUSAL = "a key is required: send the header Authorization: Bearer KEY"


class ApiKeys:
    """The accepted API keys, read from a file.

    Args:
        path: file with one key per line; blank lines are ignored.

    Raises:
        InputError: the file cannot be read, contains no key, or has a line that is not a valid key.
    """

    def __init__(self, path: str) -> None:
        with explained(path):
            lines = pathlib.Path(path).read_bytes().splitlines()
        keys = [line.strip() for line in lines]
        for number, key in enumerate(keys, start=1):
            # The message does not show the line, because it may be a mistyped key.
            if not re.fullmatch(rb"[!-~]*", key):
                raise InputError(
                    f"{path}, line {number}: a key must consist of visible ASCII characters, without spaces"
                )
        # Digests have equal lengths, so the time of a comparison does not reveal the length of a key.
        self._digests = [_digest(key) for key in keys if key]
        if not self._digests:
            raise InputError(f"{path} contains no key")

    def accepts_header(self, authorization: str) -> bool:
        """Returns whether an `Authorization` header is "Bearer KEY" with an accepted key, in constant time."""
        scheme, _, key = authorization.partition(" ")
        return self.accepts(key.strip()) and scheme.lower() == "bearer"

    def accepts(self, key: str) -> bool:
        """Returns whether a key is accepted, in constant time."""
        digest = _digest(key.encode("utf-8", "surrogatepass"))
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        return any(matches)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


class KeyCheck:
    """Middleware that answers 401 to requests without a valid key, unless they need none or their handlers check it."""

    def __init__(self, app: ASGIApp, keys: ApiKeys, refusals: Refusals) -> None:
        self._app = app
        self._keys = keys
        self._refusals = refusals

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("raw_path", b"").decode("latin-1").split("?", 1)[0]
        is_open = scope["method"] in ("GET", "HEAD") and _OPEN_PATH.fullmatch(path)
        is_checked_later = scope["method"] == "POST" and path in _PATHS_WITH_KEY_IN_BODY
        if is_open or is_checked_later or self._keys.accepts_header(Headers(scope=scope).get("authorization", "")):
            await self._app(scope, receive, send)
        else:
            self._refusals.add("rest", Reason.KEY, address(scope.get("client")))
            headers = {"WWW-Authenticate": "Bearer", "Connection": "close"}
            content = json.dumps({"error": _REFUSAL})
            await Response(content, 401, headers, "application/json")(scope, receive, send)


class KeyInterceptor(grpc.aio.ServerInterceptor):
    """Answers UNAUTHENTICATED to calls without a valid key, except health checks and model status queries."""

    def __init__(self, keys: ApiKeys, refusals: Refusals) -> None:
        self._keys = keys
        self._refusals = refusals

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any) -> Any:
        metadata: Iterable[tuple[str, Any]] = handler_call_details.invocation_metadata or ()
        authorization = next((value for name, value in metadata if name == "authorization"), "")
        if handler_call_details.method.startswith(_OPEN_METHODS) or self._keys.accepts_header(authorization):
            return await continuation(handler_call_details)
        return grpc.unary_unary_rpc_method_handler(self._refuse)

    async def _refuse(self, message: bytes, context: Any) -> NoReturn:
        self._refusals.add("grpc", Reason.KEY, context.peer())
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, _REFUSAL)
        raise AssertionError("abort always raises")


def check_certificate(certificate: str, key: str) -> None:
    """Raises an `InputError` unless the PEM files hold a certificate (or chain) and its key without a password."""
    for path in (certificate, key):
        with explained(path):
            pathlib.Path(path).read_bytes()
    try:
        # The password argument prevents a prompt, because the server may run without a terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=b"")
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        raise InputError(f"{certificate} and {key} are not a PEM certificate and its key: {reason}") from error


def grpc_credentials(certificate: str, key: str) -> grpc.ServerCredentials:
    """Returns the credentials of a gRPC port, from files that `check_certificate` accepts."""
    return grpc.ssl_server_credentials([(pathlib.Path(key).read_bytes(), pathlib.Path(certificate).read_bytes())])

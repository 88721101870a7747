"""The health service of gRPC, which Kubernetes, Envoy and `grpc_health_probe` ask whether a server is ready.

Reference: https://github.com/grpc/grpc/blob/master/doc/health-checking.md
"""

import asyncio
import enum
from collections.abc import AsyncIterator
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError
from google.protobuf.wrappers_pb2 import Int32Value, StringValue

from t2t_keras.serving.core import Core
from t2t_keras.serving.refusals import Reason

# grpc.aio.ServicerContext: grpc has no types.
_Context: TypeAlias = Any

_SERVICE = "grpc.health.v1.Health"
# Names that a client may ask for, besides those of the models; "" is the whole server.
_SERVICES = ("", "tensorflow.serving.PredictionService", "tensorflow.serving.ModelService", _SERVICE)

# Between two looks at what a watching client was told last.
_LOOK_SECONDS = 0.2


class Health(enum.IntEnum):
    """Whether a service answers, with the numbers of the protocol."""

    SERVING = 1
    NOT_SERVING = 2
    SERVICE_UNKNOWN = 3


def health_service(core: Core, stopping: asyncio.Event) -> grpc.GenericRpcHandler:
    """Returns the service, which says that the server is ready while each model is served and it is not `stopping`."""
    service = _HealthService(core, stopping)
    return grpc.method_handlers_generic_handler(
        _SERVICE,
        {
            "Check": grpc.unary_unary_rpc_method_handler(service.check),
            "Watch": grpc.unary_stream_rpc_method_handler(service.watch),
        },
    )


class _HealthService:
    """Its two methods; a method takes a serialized message and returns one, or several."""

    def __init__(self, core: Core, stopping: asyncio.Event) -> None:
        self._core = core
        self._stopping = stopping
        self._num_watching = 0

    async def check(self, message: bytes, context: _Context) -> bytes:
        service = await _service(message, context)
        health = self._health(service)
        if health is Health.SERVICE_UNKNOWN:
            self._core.refusals.add("grpc", Reason.MODEL, context.peer())
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no service or model has the name {service!r}")
        return _response(health)

    async def watch(self, message: bytes, context: _Context) -> AsyncIterator[bytes]:
        """Says how a service is, and again each time that this changes; ends when the server is stopped."""
        service = await _service(message, context)
        # A watching client takes the place of a call, for as long as it likes and without a key.
        limit = max(1, self._core.options.max_connections // 4)
        if self._num_watching >= limit:
            refusal = f"{limit} clients are watching, a quarter of max_connections; use Check, or try again later"
            self._core.refusals.add("grpc", Reason.CONNECTIONS, context.peer())
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, refusal)
        self._num_watching += 1
        try:
            async for response in self._changes(service):
                yield response
        finally:
            self._num_watching -= 1

    async def _changes(self, service: str) -> AsyncIterator[bytes]:
        told = None
        while told is None or not self._stopping.is_set():
            health = self._health(service)
            if health is not told:
                told = health
                yield _response(health)
            try:
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._stopping.wait()
            except TimeoutError:
                continue
            if told is Health.SERVING:
                yield _response(Health.NOT_SERVING)

    def _health(self, service: str) -> Health:
        versions = self._core.models.get(service)
        if not versions and service not in _SERVICES:
            return Health.SERVICE_UNKNOWN
        ready = versions.served is not None if versions else self._core.models.are_served
        return Health.SERVING if ready and not self._stopping.is_set() else Health.NOT_SERVING


async def _service(message: bytes, context: _Context) -> str:
    """The name in a `HealthCheckRequest`, which has a string as its field 1, as `StringValue` has."""
    try:
        return StringValue.FromString(message).value
    except DecodeError:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the message is not a valid HealthCheckRequest")
        raise AssertionError("abort always raises") from None


def _response(health: Health) -> bytes:
    """A `HealthCheckResponse`, which has an enum as its field 1, written as `Int32Value` writes its number."""
    return Int32Value(value=health).SerializeToString()

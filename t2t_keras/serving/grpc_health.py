"""The gRPC health checking service, which Kubernetes, Envoy and `grpc_health_probe` use to test readiness.

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

# Stands for grpc.aio.ServicerContext, because grpc has no type annotations.
_Context: TypeAlias = Any

_SERVICE = "grpc.health.v1.Health"
# Service names that a client may query, besides the names of models; "" means the whole server.
_SERVICES = ("", "tensorflow.serving.PredictionService", "tensorflow.serving.ModelService", _SERVICE)

# Interval between checks for changes, which are reported to watching clients.
_CHECK_SECONDS = 0.2


class Health(enum.IntEnum):
    """Serving status, with the numbers of the protocol."""

    SERVING = 1
    NOT_SERVING = 2
    SERVICE_UNKNOWN = 3


def health_service(core: Core, stopping: asyncio.Event) -> grpc.GenericRpcHandler:
    """Returns the health service. The server is ready while all models are served and `stopping` is not set."""
    service = _HealthService(core, stopping)
    return grpc.method_handlers_generic_handler(
        _SERVICE,
        {
            "Check": grpc.unary_unary_rpc_method_handler(service.check),
            "Watch": grpc.unary_stream_rpc_method_handler(service.watch),
        },
    )


class _HealthService:
    """The two methods of the service, which take and return serialized messages."""

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
        """Yields the status of a service now and whenever it changes, until the server stops."""
        service = await _service(message, context)
        # Limited, because a watching client needs no key and can occupy a call forever.
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
        last = None
        while last is None or not self._stopping.is_set():
            health = self._health(service)
            if health is not last:
                last = health
                yield _response(health)
            try:
                async with asyncio.timeout(_CHECK_SECONDS):
                    await self._stopping.wait()
            except TimeoutError:
                continue
            if last is Health.SERVING:
                yield _response(Health.NOT_SERVING)

    def _health(self, service: str) -> Health:
        versions = self._core.models.get(service)
        if not versions and service not in _SERVICES:
            return Health.SERVICE_UNKNOWN
        is_ready = versions.served is not None if versions else self._core.models.are_served
        return Health.SERVING if is_ready and not self._stopping.is_set() else Health.NOT_SERVING


async def _service(message: bytes, context: _Context) -> str:
    """Parses a `HealthCheckRequest`, whose wire format is that of `StringValue`: a string in field 1."""
    try:
        return StringValue.FromString(message).value
    except DecodeError:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the message is not a valid HealthCheckRequest")
        raise AssertionError("abort always raises") from None


def _response(health: Health) -> bytes:
    """Returns a `HealthCheckResponse`. Its enum in field 1 has the wire format of `Int32Value`."""
    return Int32Value(value=health).SerializeToString()

"""Starts and stops the server: its models, its two front ends, and their event loop."""

import asyncio
import contextlib
import functools
import math
import socket
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, cast

import grpc
import uvicorn

from t2t_keras.serving.access import ApiKeys, KeyInterceptor, check_certificate, grpc_credentials
from t2t_keras.serving.connections import BoundedProtocol, LoopErrors
from t2t_keras.serving.core import Core
from t2t_keras.serving.grpc_health import health_service
from t2t_keras.serving.grpc_service import UnknownMethods, add_services
from t2t_keras.serving.http.fields import RequestField
from t2t_keras.serving.http.rest import rest_app
from t2t_keras.serving.options import ServingOptions
from t2t_keras.serving.served_models import DEFAULT_LOADER, Loader

# Closes connections that never complete the handshake, idle ones, and those of clients that disappeared.
_GRPC_CONNECTIONS = {
    "grpc.server_handshake_timeout_ms": 10_000,
    "grpc.max_connection_idle_ms": 300_000,
    "grpc.keepalive_time_ms": 60_000,
    "grpc.keepalive_timeout_ms": 20_000,
}

# Maximum number of connections that wait to be accepted.
_BACKLOG = 128

# Time that the front ends have after the grace period to send errors.
_CUT_OFF_SECONDS = 1


class Server:
    """A server that runs in background threads.

    Args:
        options: settings of the server.
        loader: loads the versions of the models.
        fields: the optional fields of REST requests; the automatic ones also process gRPC requests.

    Attributes:
        core: the server without its front ends.
        rest_address: "host:port" of the REST interface, set by `start`.
        grpc_address: "host:port" of the gRPC interface, set by `start`.

    Raises:
        InputError: the configuration of the models, the certificate or the key file is invalid.
    """

    def __init__(
        self,
        options: ServingOptions,
        loader: Loader = DEFAULT_LOADER,
        fields: Sequence[RequestField] = (),
    ) -> None:
        self._options, self._fields = options, fields
        if options.tls_certificate:
            check_certificate(options.tls_certificate, options.tls_key)
        self._keys = ApiKeys(options.api_key_file) if options.api_key_file else None
        self.core = Core(options, loader)
        self.rest_address = self.grpc_address = ""
        self._stop_request = asyncio.Event()
        self._serves: Future[asyncio.AbstractEventLoop] = Future()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Opens the ports, then loads the models; returns after one attempt to load each of them.

        Requests for a model get errors until it is loaded.

        Raises:
            OSError: an address is not available.
            InputError: see `ConfiguredModels.start`.
        """
        listener = listen(self._options.host, self._options.rest_port)
        self._thread = threading.Thread(target=self._run, args=(listener,), name="front-ends", daemon=True)
        self._thread.start()
        try:
            # Waits for the front ends first, because a port may be in use.
            self._serves.result()
            self.core.models.start()
        except Exception:
            self.stop()
            raise

    def stop(self) -> bool:
        """Stops the server. Requests that are unanswered after `grace_seconds` fail with an error.

        May be called repeatedly, and on a server that was not started.

        Returns:
            Whether all requests were answered.
        """
        if not self._thread:
            return self.core.close(0)
        deadline = time.monotonic() + self._options.grace_seconds
        if not self._serves.exception():
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._serves.result().call_soon_threadsafe(self._stop_request.set)
        self._thread.join(self._options.grace_seconds + _CUT_OFF_SECONDS + 1)
        return self.core.close(max(deadline - time.monotonic(), 0)) and not self._thread.is_alive()

    def _run(self, listener: socket.socket) -> None:
        try:
            with listener:
                asyncio.run(self._serve(listener))
        except Exception as error:
            if self._serves.done():
                raise
            self._serves.set_exception(error)

    async def _serve(self, listener: socket.socket) -> None:
        """Runs both front ends in this event loop until the server is stopped."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(LoopErrors())
        grpc_server = self._bind_grpc()
        self.rest_address = _address(self._options.host, listener.getsockname()[1])
        await grpc_server.start()
        rest_server = uvicorn.Server(self._rest_config())
        serving = asyncio.create_task(rest_server.serve(sockets=[listener]))
        while not rest_server.started:
            if serving.done():
                await grpc_server.stop(0)
                serving.result()  # raises its exception, if any
                raise OSError("the REST interface did not start")
            await asyncio.sleep(0.01)
        # asyncio accepts up to `backlog` connections in a row and logs each failure if file descriptors run out, so
        # uvicorn was given a backlog of 1. The socket itself may queue more.
        listener.listen(_BACKLOG)
        self._serves.set_result(loop)
        await self._stop_request.wait()
        rest_server.should_exit = True
        grace = self._options.grace_seconds
        ending = asyncio.gather(serving, grpc_server.stop(grace + _CUT_OFF_SECONDS))
        await asyncio.wait([ending], timeout=grace)
        # Pending requests fail now, while both front ends still have time to send the errors.
        self.core.abandon()
        await ending

    def _bind_grpc(self) -> grpc.aio.Server:
        """Returns a gRPC server that is bound to its port but not started."""
        server = grpc.aio.server(
            interceptors=[KeyInterceptor(self._keys, self.core.refusals)] if self._keys else [],
            options=[
                ("grpc.max_receive_message_length", self._options.limits.max_body_bytes),
                ("grpc.max_send_message_length", -1),
                ("grpc.max_allowed_incoming_connections", self._options.max_connections),
                *_GRPC_CONNECTIONS.items(),
                # Otherwise a second server on the same port would silently get some of the requests.
                ("grpc.so_reuseport", 0),
            ],
            maximum_concurrent_rpcs=self._options.max_connections,
        )
        add_services(server, self.core, self._fields)
        server.add_generic_rpc_handlers([health_service(self.core, self._stop_request), UnknownMethods(self.core)])
        address = _address(self._options.host, self._options.grpc_port)
        try:
            if self._options.tls_certificate:
                credentials = grpc_credentials(self._options.tls_certificate, self._options.tls_key)
                port = server.add_secure_port(address, credentials)
            else:
                port = server.add_insecure_port(address)
        except RuntimeError as error:
            keys = ", or the certificate does not match the key" if self._options.tls_certificate else ""
            raise OSError(f"cannot listen on {address}{keys}: {error}") from error
        self.grpc_address = _address(self._options.host, port)
        return server

    def _rest_config(self) -> uvicorn.Config:
        return uvicorn.Config(
            rest_app(self.core, self._keys, self._fields),
            http=cast(
                Any, functools.partial(BoundedProtocol, refusals=self.core.refusals, gateways=self._options.gateways)
            ),
            ssl_certfile=self._options.tls_certificate or None,
            ssl_keyfile=self._options.tls_key or None,
            # uvicorn's count includes the new connection.
            limit_concurrency=self._options.max_connections + 1,
            log_config=None,
            log_level="error",
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            backlog=1,
            timeout_keep_alive=self._options.keep_alive_seconds,
            timeout_graceful_shutdown=math.ceil(self._options.grace_seconds) + _CUT_OFF_SECONDS,
        )


def listen(host: str, port: int) -> socket.socket:
    """Returns a listening socket.

    Args:
        host: name, IPv4 address or IPv6 address; "::" includes IPv4.
        port: port number; 0 means any free port.

    Raises:
        OSError: the address is not available; the message names it.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    is_dual = host == "::" and socket.has_dualstack_ipv6()  # "::" includes IPv4, as in gRPC
    try:
        listener = socket.create_server((host, port), family=family, backlog=_BACKLOG, dualstack_ipv6=is_dual)
    except OSError as error:
        raise OSError(f"cannot listen on {_address(host, port)}: {error.strerror or error}") from error
    # Inherited by connections. Without it, the body of a response waits up to 40 ms until the client acknowledges the
    # head.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

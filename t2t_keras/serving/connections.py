"""Limits the number of REST connections, in total and per client address, and closes slow ones."""

import asyncio
import http
import ipaddress
import json
import logging
from collections.abc import Sequence
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from t2t_keras.serving.answers import seconds_to_send
from t2t_keras.serving.refusals import Reason, Refusals, address

_LOG = logging.getLogger(__name__)

_CHECK_SECONDS = 1.0
# Time limit for the head of a request. It starts with the connection, or with the first byte of each later request.
# Bodies have a separate limit.
_HEAD_SECONDS = 10.0
_SENT_AT_ONCE = 1 << 14  # bytes
_PARSED_AT_ONCE = 1 << 12  # bytes
_MAX_CHUNKS = 128  # chunks of a body in one parsed piece
_MAX_AHEAD = 1 << 18  # bytes of pipelined requests that wait for the current response


class BoundedProtocol(H11Protocol):
    """uvicorn's protocol with further limits, because uvicorn closes idle connections only after a response.

    The maximum number of connections is `uvicorn.Config.limit_concurrency` minus 1. Each address may use half of them,
    unless it belongs to `gateways`. The protocol closes connections whose clients do not complete the head of a request
    in time, or read a response too slowly. The `state` of a request's scope contains a future `gone`, which completes
    when the client disconnects.

    Args:
        *arguments: passed to uvicorn's protocol.
        refusals: counts refused connections and requests.
        gateways: addresses or networks of proxies; each of these addresses may use all connections.
        **settings: passed to uvicorn's protocol.
    """

    def __init__(
        self, *arguments: Any, refusals: Refusals | None = None, gateways: Sequence[str] = (), **settings: Any
    ) -> None:
        super().__init__(*arguments, **settings)
        self.conn: _Parser = _Parser(h11.SERVER)
        self._refusals, self._gateways = refusals, gateways

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._bytes = _CountedTransport(cast(asyncio.Transport, transport), self.loop)
        super().connection_made(cast(asyncio.Transport, self._bytes))
        self._disconnection = self.loop.create_future()
        self.app_state = {**self.app_state, "gone": self._disconnection}
        self._waits_since = self._reads_since = self.loop.time()
        self._has_begun = True  # the first request must arrive in time; only later ones may take the keep-alive time
        self._num_sent_before = 0
        self._next_check = self.loop.call_later(_CHECK_SECONDS, self._check_client)
        if refusal := self._refusal():
            # Refused before it sends a request, because a client that sends nothing would occupy the connection.
            self._answer(503, refusal)

    def data_received(self, data: bytes) -> None:
        if not self._has_begun:
            self._has_begun, self._waits_since = True, self.loop.time()
        # Parsed in pieces, because parsing blocks the event loop.
        for start in range(0, len(data), _PARSED_AT_ONCE):
            # Data may still arrive after the connection was refused.
            if self.transport.is_closing():
                return
            self.conn.num_chunks = 0
            super().data_received(data[start : start + _PARSED_AT_ONCE])
        if not self.transport.is_closing() and len(self.conn.trailing_data[0]) > _MAX_AHEAD:
            self._answer(400, "too many pipelined requests: read the responses before you send more")
        elif self.conn.their_state in (h11.DONE, h11.MIGHT_SWITCH_PROTOCOL):  # the latter if the client offers HTTP/2
            # A paused connection would not report that its client disconnects.
            self.flow.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._next_check.cancel()
        self._disconnection.set_result(None)
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._waits_since = self.loop.time()
        self._has_begun = bool(self.conn.trailing_data[0])
        self.conn.num_chunks = 0
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        self._answer(400, self.conn.refusal or msg)

    def _refusal(self) -> str:
        """Returns why the connection exceeds a limit, or "" if it does not."""
        if self.limit_concurrency is None:
            return ""
        limit = self.limit_concurrency - 1
        if len(self.connections) > limit:
            return f"too many connections: the limit is max_connections={limit}; try again later"
        share = (limit + 1) // 2
        client = self._address()
        if sum(cast(BoundedProtocol, other)._address() == client for other in self.connections) <= share or not client:
            return ""
        if any(ipaddress.ip_address(client) in ipaddress.ip_network(gateway) for gateway in self._gateways):
            return ""
        return f"too many connections from {client}: the limit is {share}, half of max_connections={limit}"

    def _address(self) -> str:
        """Returns the client's address, without the prefix of IPv4 addresses on IPv6 sockets."""
        return self.client[0].removeprefix("::ffff:") if self.client else ""

    def _answer(self, status: int, message: str) -> None:
        """Sends an error response in place of the application and closes the connection."""
        self.connections.discard(self)
        if self._refusals:
            self._refusals.add("rest", Reason.CONNECTIONS if status == 503 else Reason.REQUEST, address(self.client))
        if self.cycle and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.abort()  # the error would be read as a part of the current response, or as the next one
            return
        content = json.dumps({"error": message}).encode()
        head = (
            f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(content)}\r\nConnection: close\r\n" + ("Retry-After: 1\r\n" if status == 503 else "")
        )
        self.transport.write(head.encode() + b"\r\n" + content)
        self.transport.close()

    def _check_client(self) -> None:
        """Closes the connection if its client is too slow, else checks again later."""
        now = self.loop.time()
        num_unsent = self.transport.get_write_buffer_size()
        is_waiting = self._has_begun and (self.cycle is None or self.cycle.response_complete)
        if self._is_stuck(now, num_unsent) or is_waiting and not num_unsent and now - self._waits_since > _HEAD_SECONDS:
            self.transport.abort()
        else:
            self._next_check = self.loop.call_later(_CHECK_SECONDS, self._check_client)

    def _is_stuck(self, now: float, num_unsent: int) -> bool:
        """Returns whether the client has read too little since the write buffer was last empty."""
        num_sent = self._bytes.written - num_unsent
        if not num_unsent:
            self._reads_since, self._num_sent_before = now, num_sent
        return now - self._reads_since > seconds_to_send(num_sent - self._num_sent_before)


class _Parser(h11.Connection):
    """A parser that refuses bodies in very small chunks, because parsing a small chunk takes as long as a large one.

    Attributes:
        num_chunks: number of chunks parsed since the last reset.
        refusal: why a request is refused, or "".
    """

    num_chunks = 0
    refusal = ""

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        event = super().next_event()
        self.num_chunks += isinstance(event, h11.Data)
        if self.num_chunks > _MAX_CHUNKS:
            self.refusal = "the chunks of the body are too small"
            raise h11.RemoteProtocolError(self.refusal)
        return event


class _CountedTransport:
    """A transport that counts written bytes, and merges small writes within one iteration of the event loop.

    uvicorn writes the head and the body of a response separately, and the system call of a write is the most expensive
    step of a response.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._unsent = bytearray()
        self.written = 0

    def write(self, data: bytes) -> None:
        self.written += len(data)
        if len(self._unsent) + len(data) > _SENT_AT_ONCE:
            # Writing at once avoids a copy, and only the underlying transport can pause a writer.
            self._send()
            self._transport.write(data)
            return
        if not self._unsent:
            self._loop.call_soon(self._send)
        self._unsent += data

    def get_write_buffer_size(self) -> int:
        return len(self._unsent) + self._transport.get_write_buffer_size()

    def close(self) -> None:
        self._send()
        self._transport.close()

    def _send(self) -> None:
        if self._unsent:
            data, self._unsent = self._unsent, bytearray()
            self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class LoopErrors:
    """An event loop's exception handler, which logs a lack of file descriptors for new connections only once."""

    def __init__(self) -> None:
        self._is_reported = False

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if context.get("message") != "socket.accept() out of system resource":
            loop.default_exception_handler(context)
        elif not self._is_reported:
            self._is_reported = True
            _LOG.error("no new connections for now: %s; see ulimit -n and --max_connections", context.get("exception"))

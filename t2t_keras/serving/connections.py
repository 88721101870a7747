"""Limits how long a slow client can hold a connection to the REST interface."""

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

_LOOK_SECONDS = 1.0
# From the connection, or from the last answer, to the end of a request's head. The body has a separate limit.
_HEAD_SECONDS = 10.0
# A client is cut off if in this time it reads neither this many bytes of its answer nor the rest of it.
_WRITE_SECONDS = 20.0
_WRITE_BYTES = 64 << 10


class BoundedProtocol(H11Protocol):
    """uvicorn's protocol with further limits, because uvicorn closes idle connections only after an answer.

    Closes a connection that sends no whole request or does not read its answer, and any connection beyond twice
    `uvicorn.Config.limit_concurrency`; beyond the limit itself uvicorn answers 503.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._waits_since = self.loop.time()
        self._unsent, self._unsent_since = 0, self._waits_since
        self._next_look = self.loop.call_later(_LOOK_SECONDS, self._look)
        if self.limit_concurrency and len(self.connections) > 2 * self.limit_concurrency:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._next_look.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._waits_since = self.loop.time()
        super().on_response_complete()

    def _look(self) -> None:
        """Closes the connection if its client is too slow, else looks again later."""
        now = self.loop.time()
        waits = self.cycle is None or self.cycle.response_complete
        if self._is_stuck(now) or waits and not self._unsent and now - self._waits_since > _HEAD_SECONDS:
            self.transport.abort()
        else:
            self._next_look = self.loop.call_later(_LOOK_SECONDS, self._look)

    def _is_stuck(self, now: float) -> bool:
        """Whether the client has read too little of its answer for too long."""
        unsent = self.transport.get_write_buffer_size()
        grown, taken = unsent > self._unsent, unsent <= self._unsent - _WRITE_BYTES
        if not unsent or grown or taken:
            self._unsent, self._unsent_since = unsent, now
        return unsent > 0 and now - self._unsent_since > _WRITE_SECONDS

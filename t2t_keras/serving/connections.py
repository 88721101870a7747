"""What a connection to the REST interface may hold on to, however slow its client is."""

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

_LOOK_SECONDS = 1.0
# From the connection, or from the last answer, to the end of a request's head. The body has a limit of its own.
_HEAD_SECONDS = 10.0
# A client that takes less of an answer than these bytes, or what is left of it, in this time is cut off.
_WRITE_SECONDS = 20.0
_WRITE_BYTES = 64 << 10


class BoundedProtocol(H11Protocol):
    """uvicorn's protocol, which closes idle connections only after an answer, with limits for the others.

    A connection without a whole request, and one whose client does not read its answer, is closed. So is one beyond
    twice the limit of `uvicorn.Config.limit_concurrency`; beyond the limit itself uvicorn answers with 503.
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
        """Whether the client has taken too little of what it is sent."""
        unsent = self.transport.get_write_buffer_size()
        grown, taken = unsent > self._unsent, unsent <= self._unsent - _WRITE_BYTES
        if not unsent or grown or taken:
            self._unsent, self._unsent_since = unsent, now
        return unsent > 0 and now - self._unsent_since > _WRITE_SECONDS

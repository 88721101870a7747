"""Counts what is refused before it is a request to a model, and tells it in the log at a bounded rate."""

import collections
import contextlib
import enum
import logging
import threading
import time
from collections.abc import Callable, Iterator

from t2t_keras.serving.request_errors import Code, ServingError

_LOG = logging.getLogger(__name__)

# Between two lines about one reason.
_SILENT_SECONDS = 60.0


class Reason(enum.Enum):
    """Why something is refused; the value says it in the log, the name in lower case is a metric's label."""

    CONNECTIONS = "too many connections or watching clients"
    HOST = "for another host, or from a page of another site"
    KEY = "without a key"
    MODEL = "for a model, a version or a service that there is not"
    REQUEST = "no request that there is"


class Refusals:
    """Counts refusals, from any thread; the log has one line a minute at most for each interface and reason.

    Args:
        count: is called with the interface, "rest" or "grpc", and the label of the reason.
    """

    def __init__(self, count: Callable[[str, str], None]) -> None:
        self._count = count
        self._lock = threading.Lock()
        self._untold: collections.Counter[tuple[str, Reason]] = collections.Counter()
        self._told: dict[tuple[str, Reason], float] = {}

    def add(self, interface: str, reason: Reason, client: str) -> None:
        """Counts one of the interface "rest" or "grpc"; `client` is the address that it came from."""
        self._count(interface, reason.name.lower())
        kind, now = (interface, reason), time.monotonic()
        with self._lock:
            self._untold[kind] += 1
            if now - self._told.get(kind, -_SILENT_SECONDS) < _SILENT_SECONDS:
                return
            self._told[kind], number = now, self._untold.pop(kind)
        _LOG.warning("refused over %s: %s (%d, the last one of %s)", interface, reason.value, number, client)

    @contextlib.contextmanager
    def counted(self, interface: str, client: str) -> Iterator[None]:
        """Counts a `ServingError` that leaves the block."""
        try:
            yield
        except ServingError as error:
            reason = Reason.MODEL if error.code is Code.NOT_FOUND else Reason.REQUEST
            self.add(interface, reason, client)
            raise


def address(client: tuple[str, int] | None) -> str:
    """The address of a client of REST, as ASGI has it."""
    return client[0] if client else "an unknown address"

"""Counts connections and requests that are refused before they reach a model, and logs them at a bounded rate."""

import collections
import contextlib
import enum
import logging
import threading
import time
from collections.abc import Callable, Iterator

from t2t_keras.serving.request_errors import Code, ServingError

_LOG = logging.getLogger(__name__)

# Minimum time between two log lines for one interface and reason.
_SILENT_SECONDS = 60.0


class Reason(enum.Enum):
    """Reason for a refusal. The value appears in the log, the name in lower case is a metric label."""

    CONNECTIONS = "too many connections or watching clients"
    HOST = "a different host or origin"
    KEY = "no valid key"
    MODEL = "an unknown model, version or service"
    REQUEST = "an invalid request, or an unknown path or method"


class Refusals:
    """Thread-safe counter of refusals; logs at most one line per minute for each interface and reason.

    Args:
        count: called with the interface, "rest" or "grpc", and the metric label of the reason.
    """

    def __init__(self, count: Callable[[str, str], None]) -> None:
        self._count = count
        self._lock = threading.Lock()
        self._num_unreported: collections.Counter[tuple[str, Reason]] = collections.Counter()
        self._last_reports: dict[tuple[str, Reason], float] = {}

    def add(self, interface: str, reason: Reason, client: str) -> None:
        """Counts a refusal.

        Args:
            interface: "rest" or "grpc".
            reason: reason for the refusal.
            client: address of the client, for the log.
        """
        self._count(interface, reason.name.lower())
        kind, now = (interface, reason), time.monotonic()
        with self._lock:
            self._num_unreported[kind] += 1
            if now - self._last_reports.get(kind, -_SILENT_SECONDS) < _SILENT_SECONDS:
                return
            self._last_reports[kind], number = now, self._num_unreported.pop(kind)
        _LOG.warning(
            "%s: refused %d connections or requests, the last from %s; reason: %s",
            interface,
            number,
            client,
            reason.value,
        )

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
    """Returns the address of a REST client from the `client` entry of an ASGI scope."""
    return client[0] if client else "an unknown address"

"""A lock that lets only one process write in a directory."""

import contextlib
import fcntl
import logging
import os
import pathlib
import socket
import time
from collections.abc import Iterator

from t2t_keras.errors import InputError, explained

_PATIENCE_SECONDS = 5.0  # for a dying process, or its child, that still holds the lock


class BusyError(InputError):
    """Another process holds the lock of a directory."""


@contextlib.contextmanager
def locked(directory: pathlib.Path, *, verb: str, participle: str, flag: str) -> Iterator[None]:
    """Locks a directory, which is created if missing, while the context lasts.

    The operating system releases the lock when the process dies, so nothing has to be cleaned up by hand. Messages use
    `verb` ("train"), its `participle` ("trained") and `flag`, the flag that names the directory.

    Raises:
        BusyError: another process holds the lock for more than some seconds.
        InputError: the directory is not writable.
    """
    with explained(f"cannot {verb} in {directory}"):
        directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(directory / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        _take(descriptor, directory, verb, participle, flag)
        yield
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)  # a past holder's name is of no use
    finally:
        os.close(descriptor)


def _take(descriptor: int, directory: pathlib.Path, verb: str, participle: str, flag: str) -> None:
    try:
        _wait_for_lock(descriptor)
    except BlockingIOError:
        holder = os.pread(descriptor, 1000, 0).decode("utf-8", "replace") or "another process"
        raise BusyError(f"{directory} is being {participle} already, by {holder}; use another {flag}") from None
    except OSError as error:
        logging.getLogger(__name__).warning(
            "%s cannot be locked (%s): do not %s there twice at once", directory, error.strerror, verb
        )
    with contextlib.suppress(OSError):  # on a full disk the lock works without the holder's name
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)


def _wait_for_lock(descriptor: int) -> None:
    """Locks an open file; raises a BlockingIOError if it stays locked, or another OSError if it cannot be locked."""
    ends_at = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= ends_at:
                raise
        time.sleep(0.05)

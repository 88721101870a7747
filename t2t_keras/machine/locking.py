"""A lock by which only one process at a time writes to a directory."""

import contextlib
import fcntl
import logging
import os
import pathlib
import socket
import time
from collections.abc import Iterator

from t2t_keras.errors import InputError, explained

_PATIENCE_SECONDS = 5.0  # a process that is ending, or its child, may still hold the lock


class BusyError(InputError):
    """Another process holds the lock of a directory."""


@contextlib.contextmanager
def locked(directory: pathlib.Path, *, verb: str, participle: str, flag: str) -> Iterator[None]:
    """A context that locks a directory, which is created if missing.

    The operating system releases the lock when the process dies, so that no manual cleanup is needed. On a file system
    without locks, a warning is logged instead.

    Args:
        directory: the directory.
        verb: the action of the process, such as "train", for messages.
        participle: participle of the verb, such as "trained".
        flag: the flag that names the directory.

    Raises:
        BusyError: another process still holds the lock after 5 seconds.
        InputError: the directory is not writable.
    """
    with explained(f"cannot {verb} in {directory}"):
        directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(directory / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        _take(descriptor, directory, verb, participle, flag)
        yield
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)  # removes the name of the past holder
    finally:
        os.close(descriptor)


def _take(descriptor: int, directory: pathlib.Path, verb: str, participle: str, flag: str) -> None:
    try:
        _wait_for_lock(descriptor)
    except BlockingIOError:
        holder = os.pread(descriptor, 1000, 0).decode("utf-8", "replace") or "another process"
        raise BusyError(f"{directory} is already being {participle} by {holder}; use a different {flag}") from None
    except OSError as error:
        logging.getLogger(__name__).warning(
            "%s cannot be locked (%s): do not %s there in several processes at once", directory, error.strerror, verb
        )
    with contextlib.suppress(OSError):  # on a full disk the lock still works, without the holder's name
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)


def _wait_for_lock(descriptor: int) -> None:
    """Locks an open file; raises a BlockingIOError if it stays locked, or a different OSError if locking fails."""
    ends_at = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= ends_at:
                raise
        time.sleep(0.05)

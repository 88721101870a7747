"""Checksums of files, which are read again only when they have changed."""

import contextlib
import hashlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t2t_keras.data.journal import read_json, write_json
from t2t_keras.errors import InputError

# A file that was changed so short a time ago may be changed again without its times telling.
_SETTLED_SECONDS = 2.0


def checksum(path: str | Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits.

    Raises:
        InputError: the file cannot be read.
    """
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error


def checksums(files: Mapping[str, Path], known_path: Path) -> dict[str, str]:
    """The SHA-256 of files, most of which may be known from an earlier call.

    A file whose size, inode and times are what they were is not read again.

    Args:
        files: their paths by whatever names.
        known_path: where the checksums are kept, with what the files looked like; read, and written where it can be.

    Returns:
        The checksums by those names, in hexadecimal digits.

    Raises:
        InputError: a file cannot be read.
    """
    known = _known(known_path)
    found: dict[str, str] = {}
    entries: dict[str, Any] = {}
    for name, path in files.items():
        place, state = str(path.resolve()), _state(path)
        entry = known.get(place)
        if not isinstance(entry, dict) or entry.get("state") != state:
            entry = {"state": state, "sha256": checksum(path)}
            if _state(path) != state or time.time() - max(state[-2:]) / 1e9 < _SETTLED_SECONDS:
                entry["state"] = None  # it is being written: to be read again
        found[name] = entry["sha256"]
        if entry["state"] is not None:
            entries[place] = entry
    if entries != known:
        with contextlib.suppress(OSError):  # as in a folder that is read-only; then it takes its time again
            write_json(known_path, entries)
    return found


def _known(path: Path) -> dict[str, Any]:
    """What an earlier call wrote; nothing where that is missing or damaged."""
    try:
        known = read_json(path)
    except (InputError, OSError):
        return {}
    return known if isinstance(known, dict) else {}


def _state(path: Path) -> list[int]:
    """What changes whenever a file does: device, inode, size, and the times of its contents and of its inode."""
    try:
        status = path.stat()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    return [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]

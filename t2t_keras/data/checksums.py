"""Computes checksums of files, reading only files that have changed."""

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t2t_keras.errors import explained
from t2t_keras.machine.files import read_cache, sha256, write_json

# A file that changed this recently may change again without a change of its timestamps.
_SETTLED_SECONDS = 2.0


def checksum(path: str | Path) -> str:
    """Returns the SHA-256 of a file in hexadecimal; raises an InputError if the file cannot be read."""
    with explained(f"{path}: cannot be read"):
        return sha256(path)


def checksums(files: Mapping[str, Path], known_path: Path) -> dict[str, str]:
    """Returns the SHA-256 of each file, reading only files whose size, inode or times have changed since the last call.

    Args:
        files: paths by name.
        known_path: file that stores the checksums between calls. If it cannot be written, later calls read the files
            again.

    Returns:
        The checksums by name.

    Raises:
        InputError: a file cannot be read.
    """
    old_entries = read_cache(known_path)
    digests: dict[str, str] = {}
    entries: dict[str, Any] = {}
    for name, path in files.items():
        place, state = str(path.resolve()), _state(path)
        entry = old_entries.get(place)
        if not isinstance(entry, dict) or entry.get("state") != state:
            entry = {"state": state, "sha256": checksum(path)}
            if _state(path) != state or time.time() - max(state[-2:]) / 1e9 < _SETTLED_SECONDS:
                entry["state"] = None  # the file may still change: read it again at the next call
        digests[name] = entry["sha256"]
        if entry["state"] is not None:
            entries[place] = entry
    if entries != old_entries:
        with contextlib.suppress(OSError):  # for example in a read-only directory
            write_json(known_path, entries)
    return digests


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Lists the values that differ as "name: old -> new", with abbreviated checksums."""
    names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return [f"{name}: {_short(before.get(name))} -> {_short(after.get(name))}" for name in names]


def _short(value: Any) -> str:
    return f"{value[:12]}..." if isinstance(value, str) and len(value) > 40 else repr(value)


def _state(path: Path) -> list[int]:
    """Returns the device, inode, size, mtime and ctime of a file, at least one of which differs after any change."""
    with explained(f"{path}: cannot be read"):
        status = path.stat()
    return [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]

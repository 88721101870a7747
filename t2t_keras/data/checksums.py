"""Checksums of files, which are read again only if they have changed."""

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t2t_keras.errors import explained
from t2t_keras.machine.files import read_note, sha256, write_json

# A file that changed this recently may change again without its timestamps showing it.
_SETTLED_SECONDS = 2.0


def checksum(path: str | Path) -> str:
    """The SHA-256 of a file in hexadecimal digits; raises an InputError if the file cannot be read."""
    with explained(f"{path}: cannot be read"):
        return sha256(path)


def checksums(files: Mapping[str, Path], known_path: Path) -> dict[str, str]:
    """The SHA-256 of files by name; a file whose size, inode and times have not changed is not read again.

    The file `known_path` keeps checksums and states between calls, if it is writable. Raises as `checksum`.
    """
    known = read_note(known_path)
    digests: dict[str, str] = {}
    entries: dict[str, Any] = {}
    for name, path in files.items():
        place, state = str(path.resolve()), _state(path)
        entry = known.get(place)
        if not isinstance(entry, dict) or entry.get("state") != state:
            entry = {"state": state, "sha256": checksum(path)}
            if _state(path) != state or time.time() - max(state[-2:]) / 1e9 < _SETTLED_SECONDS:
                entry["state"] = None  # it is being written: read it again next time
        digests[name] = entry["sha256"]
        if entry["state"] is not None:
            entries[place] = entry
    if entries != known:
        with contextlib.suppress(OSError):  # for example a read-only folder; the next call then reads all files again
            write_json(known_path, entries)
    return digests


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What differs between values by name, as "name: old -> new", with checksums abbreviated."""
    names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return [f"{name}: {_short(before.get(name))} -> {_short(after.get(name))}" for name in names]


def _short(value: Any) -> str:
    return f"{value[:12]}..." if isinstance(value, str) and len(value) > 40 else repr(value)


def _state(path: Path) -> list[int]:
    """A file's device, inode, size and times (of contents and inode), some of which differ after any change."""
    with explained(f"{path}: cannot be read"):
        status = path.stat()
    return [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]

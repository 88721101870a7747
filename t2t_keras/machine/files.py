"""Writes files so that each is either complete or missing; local paths, JSON files, and the checksum of a file."""

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import socket
import uuid
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from t2t_keras.errors import InputError

# What `np.load` raises for a damaged .npz: also an unknown compression, an array in no archive, a wrong size.
_OF_ARCHIVE = (zipfile.BadZipFile, zlib.error, EOFError)
DAMAGED_NPZ = (*_OF_ARCHIVE, ValueError, TypeError, RuntimeError, MemoryError)

# No space, no quota, or a file larger than the limit: there may be room later.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


# Of a URL, and of what is left of one that has been a `Path`: s3://bucket/run is then s3:/bucket/run.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/|.*://")


def local_path(path: str | os.PathLike[str], name: str) -> Path:
    """The path that a flag or an argument of that name has; raises an InputError if it is a URL.

    Everything here reads and writes files of the machine; what is elsewhere has a mirror there (`machine.remote`).
    Without this, s3://bucket/run would be made there, as the folder "s3:", and be lost with the machine.
    """
    if _SCHEME.match(os.fspath(path)):
        raise InputError(
            f"{name}={path} is no path of this machine's file system, and only local and mounted files and folders are "
            "taken here; mount the bucket or copy what is in it"
        )
    return Path(path)


def temporary_name(name: str) -> str:
    """A hidden name for what is written, and then renamed to `name`: .NAME.HOST_PID_UUID.tmp.

    A process id alone is no process's own where containers share a folder: each counts from 1.
    """
    host = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())[:20]
    return f".{name}.{host}_{os.getpid()}_{uuid.uuid4().hex[:12]}.tmp"


@contextlib.contextmanager
def replacing(path: str | Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Opens a file that gets its name only once it is complete.

    The contents, UTF-8 text with "\\n" line ends or, in the mode "wb", bytes, go to a temporary file beside `path`,
    which is renamed at the end. After an error (a full disk, an interruption) the temporary file is removed and an
    existing file of that name is untouched. A device or a pipe is written to as it is. Raises an OSError at once if
    `path` is a folder or nothing can be written beside it.
    """
    path = local_path(path, "path")
    text: dict[str, Any] = {} if "b" in mode else {"encoding": "utf-8", "newline": "\n"}
    if path.exists() and not path.is_file():
        with open(path, mode, **text) as file:
            yield file
        return
    if path.is_symlink():
        path = path.resolve()  # the link stays
    temporary = path.with_name(temporary_name(path.name))
    try:
        with open(temporary, mode, **text) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        # An error of writing to an open file (a full disk) does not name the file, one of opening it the temporary one.
        if error.filename in (None, str(temporary)) and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def new_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Makes a folder that gets its name only once everything is in it; yields it under a temporary name.

    Raises:
        InputError: there is something of that name already, other than an empty folder.
        OSError: it cannot be written.
    """
    path = local_path(path, "path")
    if path.exists() and not (path.name and path.is_dir() and not any(path.iterdir())):
        raise InputError(f"{path} exists already; give a folder that is new")
    temporary = path.with_name(temporary_name(path.name))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary.mkdir()
    try:
        yield temporary
        os.rename(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_json(path: Path, values: Any) -> None:
    """Writes JSON values to a file as `replacing` does; raises an OSError if it cannot be written."""
    with replacing(path) as file:
        json.dump(values, file, indent=2, ensure_ascii=False)
        file.write("\n")


def read_json(path: Path, made: Callable[[Any], Any] = lambda values: values, advice: str = "") -> Any:
    """What a function makes of the contents of a JSON file, or None if there is no file.

    Raises:
        InputError: the contents are no JSON, or others than the function takes; ends with the advice.
    """
    try:
        return made(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is damaged: {error!r}{advice}") from error


def read_note(path: Path) -> dict[str, Any]:
    """The object in a JSON file that can be made again; empty if the file is missing or damaged."""
    with contextlib.suppress(OSError, InputError):
        if isinstance(values := read_json(path), dict):
            return values
    return {}


def sha256(path: str | Path) -> str:
    """The SHA-256 of a file in hexadecimal digits; raises an OSError if it cannot be read."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_full(error: BaseException | None) -> bool:
    """Whether an error says that there was no room for what was to be written."""
    return isinstance(error, OSError) and error.errno in _FULL

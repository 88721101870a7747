"""Writes files atomically; also checks local paths, reads and writes JSON, and computes checksums."""

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

# Errors of `np.load` for a damaged .npz, including unknown compression, a file that is not an archive, and wrong sizes.
DAMAGED_NPZ = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, TypeError, RuntimeError, MemoryError)

# No space, no quota, or the file size limit: conditions that may pass.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

# Matches a URL, and also one that was converted to a `Path`, which turns s3://bucket/run into s3:/bucket/run.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/|.*://")


def local_path(path: str | os.PathLike[str], name: str) -> Path:
    """Converts a path to a `Path`; raises an InputError if it is a URL.

    The package works with local files; directories in object storage are mirrored locally (`machine.remote`). Without
    this check, s3://bucket/run would be created as a local directory "s3:", and be lost with the machine.

    Args:
        path: the path.
        name: name of the flag or the argument, for the message.
    """
    if _SCHEME.match(os.fspath(path)):
        raise InputError(
            f"{name}={path} is not a path of this machine's file system; mount the bucket, or copy its contents"
        )
    return Path(path)


def temporary_name(name: str) -> str:
    """Returns a hidden name for a file that is renamed to `name` when complete: .NAME.HOST_PID_UUID.tmp.

    A process id is not unique if containers share a directory, because each counts from 1.
    """
    host = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())[:20]
    return f".{name}.{host}_{os.getpid()}_{uuid.uuid4().hex[:12]}.tmp"


@contextlib.contextmanager
def replacing(path: str | Path, mode: str = "w") -> Iterator[IO[Any]]:
    """A context that writes a file atomically.

    The contents go to a temporary file in the same directory, which is renamed at the end. After an error, such as a
    full disk or an interruption, the temporary file is removed, and an existing file is left unchanged. Devices and
    pipes are written to directly.

    Args:
        path: the file to write.
        mode: "w" for UTF-8 text with "\\n" line ends, or "wb" for bytes.

    Raises:
        OSError: `path` is a directory, or its parent directory is not writable (both raised on entry), or writing
            fails.
    """
    path = local_path(path, "path")
    text: dict[str, Any] = {} if "b" in mode else {"encoding": "utf-8", "newline": "\n"}
    if path.exists() and not path.is_file():
        with open(path, mode, **text) as file:
            yield file
        return
    if path.is_symlink():
        path = path.resolve()  # replaces the target and keeps the link
    temporary = path.with_name(temporary_name(path.name))
    try:
        with open(temporary, mode, **text) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        # Errors of writing to an open file (a full disk) name no file, and errors of opening name the temporary file.
        if error.filename in (None, str(temporary)) and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def new_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A context that creates a directory atomically; yields it under a temporary name, and renames it at the end.

    Raises:
        InputError: the path exists and is not an empty directory.
        OSError: the directory cannot be written.
    """
    path = local_path(path, "path")
    if path.exists() and not (path.name and path.is_dir() and not any(path.iterdir())):
        raise InputError(f"{path} already exists; give a new folder")
    temporary = path.with_name(temporary_name(path.name))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary.mkdir()
    try:
        yield temporary
        os.rename(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_json(path: Path, values: Any) -> None:
    """Writes JSON values to a file atomically; raises an OSError if it cannot be written."""
    with replacing(path) as file:
        json.dump(values, file, indent=2, ensure_ascii=False)
        file.write("\n")


def read_json(path: Path, convert: Callable[[Any], Any] = lambda values: values, advice: str = "") -> Any:
    """Reads a JSON file and converts its contents.

    Args:
        path: the file.
        convert: converts the JSON values.
        advice: text at the end of the error message.

    Returns:
        The result of `convert`, or None if the file does not exist.

    Raises:
        InputError: the contents are not JSON, or `convert` rejects them.
    """
    try:
        return convert(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{path} is damaged: {error!r}{advice}") from error


def read_cache(path: Path) -> dict[str, Any]:
    """Reads the JSON object in a file that only caches values; returns {} if the file is missing or damaged."""
    with contextlib.suppress(OSError, InputError):
        if isinstance(values := read_json(path), dict):
            return values
    return {}


def sha256(path: str | Path) -> str:
    """Computes the SHA-256 of a file in hexadecimal; raises an OSError if it cannot be read."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_full(error: BaseException | None) -> bool:
    """Returns whether an error means that the disk, a quota or a file size limit was exceeded."""
    return isinstance(error, OSError) and error.errno in _FULL

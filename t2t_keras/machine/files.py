"""Writes files so that each is either complete or missing."""

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from t2t_keras.errors import InputError

# No space, no quota, or a file larger than the limit: there may be room later.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def replacing(path: str | Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Opens a file that gets its name only once it is complete.

    The contents go to a temporary file beside `path`, which is renamed at the end. After an error (a full disk, an
    interruption) the temporary file is removed and an existing file of that name is untouched.

    Args:
        path: the file to write.
        mode: "w" for UTF-8 text with "\\n" line ends, "wb" for bytes.

    Raises:
        OSError: the file cannot be written.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    text = {} if "b" in mode else {"encoding": "utf-8", "newline": "\n"}
    try:
        with open(temporary, mode, **text) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        # An error of writing to an open file (a full disk) does not name the file.
        if error.filename is None and error.errno is not None:
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
    path = Path(path)
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise InputError(f"{path} exists already; give a folder that is new")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary.mkdir()
    try:
        yield temporary
        os.rename(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def is_full(error: BaseException | None) -> bool:
    """Whether an error says that there was no room for what was to be written."""
    return isinstance(error, OSError) and error.errno in _FULL

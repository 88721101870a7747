"""Accesses objects in a store such as s3:// or gs:// through fsspec; errors have one-line messages with the URL."""

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from t2t_keras.errors import AwayError, InputError
from t2t_keras.machine.files import is_full

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://.")
_INSTALL = "pip install '.[remote]'"
# Parts of the names of exceptions that would recur on a retry.
_MISTAKES = ("Credential", "Validation", "Config")
# botocore retries after transient errors, such as throttling.
_OPTIONS: dict[str, dict[str, Any]] = {"s3": {"config_kwargs": {"retries": {"max_attempts": 5, "mode": "standard"}}}}


def is_url(text: str | os.PathLike[str]) -> bool:
    """Returns whether `text` is a string of the form PROTOCOL://PLACE."""
    return isinstance(text, str) and _URL.match(text) is not None


class Store:
    """The objects below a URL, addressed by names relative to it.

    Args:
        url: PROTOCOL://PLACE with a protocol that fsspec knows.

    Raises:
        InputError: the protocol is unknown, or a package for it is missing. All methods raise it if the store denies
            access or the bucket does not exist.
        AwayError: raised by all methods if the store does not answer.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        if not is_url(self.url):  # fsspec would treat s3: as a local directory
            raise InputError(f"{url} does not name a bucket")
        with _explain_errors(self.url):
            from fsspec.core import url_to_fs

            options = _OPTIONS.get("s3" if url.startswith(("s3://", "s3a://")) else "", {})
            # Cached instances and listings would be stale.
            try:
                self._files, root = url_to_fs(self.url, skip_instance_cache=True, use_listings_cache=False, **options)
            except ValueError as error:
                raise InputError(f"{self.url}: {_first_line(error)}") from error
        self._root = root.rstrip("/")

    def names(self, folder: str = "") -> list[str]:
        """Returns the names of the direct children of a folder; empty if it does not exist."""
        with _explain_errors(self.url):
            self._files.invalidate_cache()
            try:
                paths = self._files.ls(self._at(folder), detail=False)
            except FileNotFoundError:
                return []
        return [path.rstrip("/").rpartition("/")[2] for path in paths]

    def read(self, name: str) -> bytes | None:
        """Reads an object; returns None if it does not exist."""
        with _explain_errors(self.url):
            try:
                return self._files.cat_file(self._at(name))
            except FileNotFoundError:
                return None

    def create(self, name: str, contents: bytes) -> bool:
        """Creates an object exclusively; returns False and changes nothing if the name exists."""
        with _explain_errors(self.url):
            self._make_folder(name)
            try:
                self._files.pipe_file(self._at(name), contents, mode="create")
            except FileExistsError:
                return False
        return True

    def put(self, path: Path, name: str) -> None:
        """Uploads a file that no longer changes, and replaces an object of the same name."""
        with _explain_errors(self.url):
            self._make_folder(name)
            self._files.put_file(str(path), self._at(name))

    def get(self, name: str, path: Path) -> bool:
        """Downloads an object to a new file; returns False if the object does not exist."""
        with _explain_errors(self.url, path):
            try:
                self._files.get_file(self._at(name), str(path))
            except FileNotFoundError:
                return False
        return True

    def remove(self, names: Iterable[str]) -> None:
        """Deletes objects; ignores missing ones."""
        for name in names:
            with _explain_errors(self.url), contextlib.suppress(FileNotFoundError):
                self._files.rm_file(self._at(name))

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}".rstrip("/")

    def _make_folder(self, name: str) -> None:
        """Creates the parent folder of an object if the protocol has folders; buckets do not."""
        if self._files.protocol in ("file", ("file", "local"), "memory", "hdfs"):
            self._files.makedirs(self._at(name).rpartition("/")[0], exist_ok=True)


@contextlib.contextmanager
def _explain_errors(url: str, path: Path | None = None) -> Iterator[None]:
    """A context that converts the errors of a store's packages, which share no base class, to an InputError.

    Unless an error is a known mistake of the user, it is taken to mean that the store does not answer: an AwayError.

    Args:
        url: URL of the store, for the message.
        path: local file of a download, or None; a full disk there is reported as such.
    """
    try:
        yield
    except InputError:
        raise
    except ImportError as error:
        raise InputError(f"{url}: a required package is missing ({_first_line(error)}): {_INSTALL}") from error
    except PermissionError as error:
        raise InputError(f"{url}: access denied: {_first_line(error)}") from error
    except FileNotFoundError as error:
        raise InputError(f"{url}: no such bucket or folder: {_first_line(error)}") from error
    except Exception as error:
        if path is not None and is_full(error):
            raise InputError(
                f"{url}: no space left in {path.parent}; T2T_KERAS_CACHE can name a different folder"
            ) from error
        name = type(error).__name__
        is_mistake = isinstance(error, (ValueError, TypeError)) or any(part in name for part in _MISTAKES)
        raise (InputError if is_mistake else AwayError)(f"{url}: {name}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__

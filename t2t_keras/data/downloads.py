"""Files from public addresses: downloaded once, verified, kept."""

import hashlib
import http.client
import shutil
import urllib.error
import urllib.request
from pathlib import Path

from t2t_keras.data.writing import replacing
from t2t_keras.errors import InputError

_TIMEOUT_SECONDS = 60
_USER_AGENT = "t2t-keras"


def fetch(url: str, path: str | Path, sha256: str | None = None) -> None:
    """Downloads a file, unless it is there already, and verifies it.

    Args:
        url: its public address.
        path: where it is kept; folders are made as needed.
        sha256: checksum in hexadecimal digits; None where the publisher changes
            the file from time to time.

    Raises:
        InputError: the address cannot be reached, or the checksum differs.
        OSError: the file cannot be written.
    """
    path = Path(path)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        request = urllib.request.Request(url, headers={"User-Agent": _USER_AGENT})
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer, replacing(path, "wb") as file:
                shutil.copyfileobj(answer, file)
                _check_complete(answer, file.tell())
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError) as error:
            raise InputError(
                f"{url}: cannot be downloaded ({error}); where there is no internet, put the file at {path}"
            ) from error
    if sha256 is not None:
        verify(path, sha256)


def verify(path: str | Path, sha256: str) -> None:
    """Checks a file's checksum.

    Raises:
        InputError: the file cannot be read, or its SHA-256 is another one.
    """
    if (found := checksum(path)) != sha256:
        raise InputError(f"{path}: SHA-256 is {found}, expected {sha256}; delete the file to download it again")


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


def _check_complete(answer: http.client.HTTPResponse, received: int) -> None:
    """`copyfileobj` takes a connection that broke for the end of the file."""
    announced = answer.headers.get("Content-Length")
    if announced is not None and int(announced) != received:
        raise http.client.HTTPException(f"connection broke after {received} of {announced} bytes")

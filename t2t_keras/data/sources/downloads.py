"""Files from public addresses: downloaded once, verified, kept."""

import http.client
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from t2t_keras.data.checksums import checksum
from t2t_keras.errors import InputError
from t2t_keras.machine.files import replacing

_TIMEOUT_SECONDS = 60
_USER_AGENT = "t2t-keras"
_PART_BYTES = 1 << 16


def fetch(url: str, path: str | Path, sha256: str | None = None) -> None:
    """Downloads a file unless it exists, and verifies it; folders are created as needed.

    `sha256` is None if the publisher changes the file from time to time. An InputError says that the address cannot be
    reached, or that the checksum differs.
    """
    path = Path(path)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with _answer(url) as answer, replacing(path, "wb") as file:
                file.writelines(_received(answer))
        except http.client.HTTPException as error:
            raise InputError(
                f"{url}: cannot be downloaded ({error}); where there is no internet, put the file at {path}"
            ) from error
    if sha256 is not None:
        verify(path, sha256)


def verify(path: str | Path, sha256: str) -> None:
    """Raises an InputError if a file cannot be read or has another SHA-256."""
    if (digest := checksum(path)) != sha256:
        raise InputError(f"{path}: SHA-256 is {digest}, expected {sha256}; delete the file to download it again")


def _answer(url: str) -> http.client.HTTPResponse:
    """A server's response, with only the head received; raises an HTTPException if there is no response or no file."""
    request = urllib.request.Request(url, headers={"User-Agent": _USER_AGENT})
    try:
        return urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS)
    except OSError as error:
        raise http.client.HTTPException(str(error)) from error


def _received(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    """Yields the parts of a response; raises an HTTPException if the connection breaks."""
    announced, received = answer.headers.get("Content-Length"), 0
    while True:
        try:
            part = answer.read(_PART_BYTES)
        except OSError as error:  # reset, timed out or damaged in transit
            reason = error.strerror or str(error)
            raise http.client.HTTPException(f"connection broke after {received} bytes: {reason}") from error
        if not part:
            break
        received += len(part)
        yield part
    # A connection that was closed too early looks like the end.
    if announced is not None and int(announced) != received:
        raise http.client.HTTPException(f"connection broke after {received} of {announced} bytes")

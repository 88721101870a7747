"""Downloads files once and verifies their checksums."""

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
    """Downloads a file unless it exists, and verifies its checksum.

    Args:
        url: address of the file.
        path: local path; missing directories are created.
        sha256: expected SHA-256 in hexadecimal; None does not verify the file.

    Raises:
        InputError: the file cannot be downloaded, or its checksum differs.
    """
    path = Path(path)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with _response(url) as response, replacing(path, "wb") as file:
                file.writelines(_read_parts(response))
        except http.client.HTTPException as error:
            raise InputError(
                f"{url}: cannot be downloaded ({error}); without internet access, put the file at {path}"
            ) from error
    if sha256 is not None:
        verify(path, sha256)


def verify(path: str | Path, sha256: str) -> None:
    """Raises an InputError if a file cannot be read or has a different SHA-256."""
    if (digest := checksum(path)) != sha256:
        raise InputError(f"{path}: SHA-256 is {digest}, expected {sha256}; delete the file to download it again")


def _response(url: str) -> http.client.HTTPResponse:
    """Opens the response of a server without reading its body; raises an HTTPException on failure."""
    request = urllib.request.Request(url, headers={"User-Agent": _USER_AGENT})
    try:
        return urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS)
    except OSError as error:
        raise http.client.HTTPException(str(error)) from error


def _read_parts(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """Yields the parts of a response; raises an HTTPException if the connection breaks."""
    content_length, num_bytes = response.headers.get("Content-Length"), 0
    while True:
        try:
            part = response.read(_PART_BYTES)
        except OSError as error:  # reset, timed out or damaged in transit
            reason = error.strerror or str(error)
            raise http.client.HTTPException(f"connection broke after {num_bytes} bytes: {reason}") from error
        if not part:
            break
        num_bytes += len(part)
        yield part
    # A connection that is closed too early looks like the end of the file.
    if content_length is not None and int(content_length) != num_bytes:
        raise http.client.HTTPException(f"connection broke after {num_bytes} of {content_length} bytes")

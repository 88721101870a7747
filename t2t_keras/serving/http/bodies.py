"""Reads the bodies of requests: compressed or not, within a limit and a time."""

import asyncio
import zlib

from starlette.requests import Request

from t2t_keras.serving import off_loop
from t2t_keras.serving.http.hosts import header
from t2t_keras.serving.request_errors import Code, ServingError, TooLarge, invalid

# So many bytes of a body above the limit are read and discarded, because a client that reads only after it has written
# everything would otherwise get a reset connection instead of the answer.
_DISCARDED_BYTES = 64 << 20
_READ_SECONDS = 60.0


async def read_body(request: Request, limit: int) -> bytes:
    """Reads a request's body and decompresses it if it is gzip.

    Raises:
        TooLarge: it has more than `limit` bytes.
        ServingError: it is not what its headers say, comes too slowly, or its client is gone.
    """
    encoding = header(request.scope, b"content-encoding")
    body = await _raw_body(request, limit)
    if encoding is None or encoding.lower() == "identity":
        return body
    if encoding.lower() != "gzip":
        raise invalid(f"a body must be compressed with gzip or not at all, not with {encoding.lower()!r}")
    return await off_loop.run(limit, _inflated, body, limit)


def _inflated(body: bytes, limit: int) -> bytes:
    """Decompresses gzip up to the limit, because a few bytes can expand to very many."""
    inflater = zlib.decompressobj(wbits=31)
    try:
        inflated = inflater.decompress(body, limit + 1)
    except zlib.error as error:
        raise invalid(f"the body is not valid gzip: {error}") from error
    if len(inflated) > limit:
        raise TooLarge(f"a body of more than {limit} bytes once inflated: the limit is max_body_bytes={limit}")
    if not inflater.eof:
        raise invalid("the body is not valid gzip: it is cut off")
    if inflater.unused_data:
        raise invalid(f"{len(inflater.unused_data)} bytes follow the gzip of the body")
    return inflated


async def _raw_body(request: Request, limit: int) -> bytes:
    """Reads the body; one above the limit is discarded and raises `TooLarge`."""
    announced = header(request.scope, b"content-length") or ""
    too_large = announced.isdecimal() and int(announced) > limit
    size, parts = 0, []
    if not (too_large and (header(request.scope, b"expect") or "").lower() == "100-continue"):
        try:
            async with asyncio.timeout(_READ_SECONDS):
                more = True
                while more and size <= limit + _DISCARDED_BYTES:
                    message = await request.receive()
                    if message["type"] == "http.disconnect":
                        raise client_is_gone()
                    part, more = message["body"], message["more_body"]
                    size += len(part)
                    if size <= limit:
                        parts.append(part)
        except TimeoutError:
            raise ServingError(Code.DEADLINE_EXCEEDED, f"no body within {_READ_SECONDS:.0f} s") from None
    if size > limit or not parts and too_large:
        body_size = announced or f"more than {limit}"
        raise TooLarge(f"a body of {body_size} bytes: the limit is max_body_bytes={limit}")
    return b"".join(parts)


def client_is_gone() -> ServingError:
    """The error of a request whose client has disconnected."""
    return ServingError(Code.CANCELLED, "the client is gone")

"""Reads request bodies, compressed or not, within limits of size and time."""

import asyncio
import zlib

from starlette.requests import Request

from t2t_keras.serving import off_loop
from t2t_keras.serving.http.hosts import header
from t2t_keras.serving.request_errors import Code, ServingError, TooLarge, invalid

# Bytes of an oversized body that are read and discarded. Many clients read only after they have written the whole body,
# and would otherwise get a connection reset instead of the error response.
_DISCARDED_BYTES = 64 << 20
_READ_SECONDS = 60.0


async def read_body(request: Request, limit: int) -> bytes:
    """Reads a request's body and decompresses it if it is gzip-compressed.

    Args:
        request: the request.
        limit: maximum size in bytes, before and after decompression.

    Raises:
        TooLarge: the body exceeds the limit.
        ServingError: the encoding is not supported, the gzip data is invalid, the body arrives too slowly, or the
            client has disconnected.
    """
    encoding = header(request.scope, b"content-encoding")
    body = await _raw_body(request, limit)
    if encoding is None or encoding.lower() == "identity":
        return body
    if encoding.lower() != "gzip":
        raise invalid(f"a body must be compressed with gzip or not at all, not with {encoding.lower()!r}")
    return await off_loop.run(limit, _inflate, body, limit)


def _inflate(body: bytes, limit: int) -> bytes:
    """Decompresses gzip data up to the limit, because a few bytes can expand to very many."""
    inflater = zlib.decompressobj(wbits=31)
    try:
        content = inflater.decompress(body, limit + 1)
    except zlib.error as error:
        raise invalid(f"the body is not valid gzip: {error}") from error
    if len(content) > limit:
        raise TooLarge(f"the body has more than {limit} bytes after decompression: the limit is max_body_bytes={limit}")
    if not inflater.eof:
        raise invalid("the body is not valid gzip: it is truncated")
    if inflater.unused_data:
        raise invalid(f"{len(inflater.unused_data)} bytes follow the gzip data of the body")
    return content


async def _raw_body(request: Request, limit: int) -> bytes:
    """Reads the body; discards a body above the limit and raises `TooLarge`."""
    content_length = header(request.scope, b"content-length") or ""
    is_too_large = content_length.isdecimal() and int(content_length) > limit
    size, parts = 0, []
    if not (is_too_large and (header(request.scope, b"expect") or "").lower() == "100-continue"):
        try:
            async with asyncio.timeout(_READ_SECONDS):
                has_more = True
                while has_more and size <= limit + _DISCARDED_BYTES:
                    message = await request.receive()
                    if message["type"] == "http.disconnect":
                        raise disconnection_error()
                    part, has_more = message["body"], message["more_body"]
                    size += len(part)
                    if size <= limit:
                        parts.append(part)
        except TimeoutError:
            raise ServingError(
                Code.DEADLINE_EXCEEDED, f"the body did not arrive within {_READ_SECONDS:.0f} s"
            ) from None
    if size > limit or is_too_large:
        body_size = content_length or f"more than {limit}"
        raise TooLarge(f"the body has {body_size} bytes: the limit is max_body_bytes={limit}")
    return b"".join(parts)


def disconnection_error() -> ServingError:
    """Returns the error for a request whose client has disconnected."""
    return ServingError(Code.CANCELLED, "the client has disconnected")

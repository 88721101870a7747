"""How a request's body is read."""

import asyncio

import pytest
from starlette.requests import Request

from t2t_keras.serving.http import bodies
from t2t_keras.serving.request_errors import TooLarge


def body_of(size: int, limit: int) -> bytes:
    """What is read of so many bytes that come in pieces of ten."""
    pieces = [
        {"type": "http.request", "body": b"x" * 10, "more_body": place + 10 < size} for place in range(0, size, 10)
    ]

    async def receive():
        return pieces.pop(0)

    return asyncio.run(bodies.read_body(Request({"type": "http", "headers": []}, receive), limit))


def test_all_that_the_limit_allows_is_read_however_much_is_discarded_beyond_it(monkeypatch):
    monkeypatch.setattr(bodies, "_DISCARDED_BYTES", 20)
    assert len(body_of(100, limit=100)) == 100
    with pytest.raises(TooLarge, match="the limit is max_body_bytes=90"):
        body_of(100, limit=90)

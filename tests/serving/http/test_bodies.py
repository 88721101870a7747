"""Reading the body of a request."""

import asyncio

import pytest
from starlette.requests import Request

from t2t_keras.serving.http import bodies
from t2t_keras.serving.request_errors import TooLarge


def read_body_of(size: int, limit: int) -> bytes:
    """Reads a body of `size` bytes that arrives in pieces of ten bytes."""
    chunks = [
        {"type": "http.request", "body": b"x" * 10, "more_body": place + 10 < size} for place in range(0, size, 10)
    ]

    async def receive():
        return chunks.pop(0)

    return asyncio.run(bodies.read_body(Request({"type": "http", "headers": []}, receive), limit))


def test_bodies_up_to_the_limit_are_read_completely(monkeypatch):
    monkeypatch.setattr(bodies, "_DISCARDED_BYTES", 20)
    assert len(read_body_of(100, limit=100)) == 100
    with pytest.raises(TooLarge, match="the limit is max_body_bytes=90"):
        read_body_of(100, limit=90)

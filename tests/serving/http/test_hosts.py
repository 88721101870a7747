"""The hosts and origins that the REST interface accepts, against DNS rebinding and cross-site requests."""

import asyncio

import pytest

from t2t_keras.errors import InputError
from t2t_keras.serving.http.hosts import HostCheck
from t2t_keras.serving.options import ServingOptions
from t2t_keras.serving.refusals import Refusals


def status(allowed, **headers):
    sent = []

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def receive():
        raise AssertionError("the request has no body")

    async def send(message):
        sent.append(message)

    names = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": names}
    asyncio.run(HostCheck(app, "gpu1", allowed, Refusals(lambda *labels: None))(scope, receive, send))
    return sent[0]["status"]


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:8501", "127.0.0.1:8501", "10.1.2.3", "[::1]:8501", "[fe80::1]", "gpu1:8501", "GPU1"],
)
def test_addresses_of_the_server_are_accepted(host):
    assert status([], host=host) == 200


def test_allowed_hosts_are_accepted():
    assert status(["translate.example"], host="translate.example:80") == 200


@pytest.mark.parametrize(
    "host",
    ["rebound.example", "rebound.example:8501", "gpu1.example", "localhost.example", "127.0.0.1.example", "[::1", "@:"],
)
def test_other_hosts_are_rejected(host):
    assert status([], host=host) == 403
    assert status(["*"], host=host) == 200


@pytest.mark.parametrize(
    ("origin", "host", "expected"),
    [
        ("http://127.0.0.1:8501", "127.0.0.1:8501", 200),
        ("https://translate.example", "translate.example", 200),  # behind a gateway that preserves the host
        ("https://translate.example", "127.0.0.1:8501", 200),  # behind a gateway that replaces the host
        ("http://127.0.0.1:3000", "127.0.0.1:8501", 403),
        ("http://gpu1:3000", "gpu1:8501", 403),
        ("https://other.example", "127.0.0.1:8501", 403),
        ("https://127.0.0.1:8501.other.example", "127.0.0.1:8501", 403),
        ("null", "127.0.0.1:8501", 403),
    ],
)
def test_other_origins_are_rejected(origin, host, expected):
    assert status(["translate.example"], host=host, origin=origin) == expected


@pytest.mark.parametrize("host", ["", "host:80", "http://host"])
def test_allowed_hosts_are_checked(tmp_path, host):
    with pytest.raises(InputError, match="allowed_hosts"):
        ServingOptions(str(tmp_path), allowed_hosts=[host])
    assert ServingOptions(str(tmp_path), allowed_hosts=["*", "translate.example"])

"""A server with S3's interface on this machine, of the package moto, which keeps buckets in memory."""

import contextlib
import logging
import os
from collections.abc import Iterator
from unittest import mock

import pytest

BUCKET = "s3://bucket"


@contextlib.contextmanager
def s3_server() -> Iterator[None]:
    """The server, with an empty bucket; processes that are started within find it by their environment.

    Tests are skipped where moto or s3fs is missing.
    """
    for package in ("moto.server", "s3fs"):
        pytest.importorskip(package, reason="moto and s3fs come with the extra ci")
    import boto3
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it writes a line for each request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    found = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        # Its address and nothing else of this machine's settings.
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
    try:
        with mock.patch.dict(os.environ, found):
            boto3.client("s3").create_bucket(Bucket="bucket")
            yield
    finally:
        server.stop()


@contextlib.contextmanager
def access_denied() -> Iterator[None]:
    """The server asks for credentials, and the ones that processes have are unknown to it."""
    with mock.patch("moto.settings.INITIAL_NO_AUTH_ACTION_COUNT", 0):
        yield

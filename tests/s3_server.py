"""A local S3 server, from the package moto, which stores buckets in memory."""

import contextlib
import logging
import os
from collections.abc import Iterator
from unittest import mock

import pytest

BUCKET = "s3://bucket"


@contextlib.contextmanager
def s3_server() -> Iterator[None]:
    """Starts a server with an empty bucket, and sets the environment variables of its address.

    Tests are skipped if moto or s3fs is missing.
    """
    for package in ("moto.server", "s3fs"):
        pytest.importorskip(package, reason="needs moto and s3fs, from the extra ci")
    import boto3
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # logs each request otherwise
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    variables = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        # Ignore the settings of this machine.
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
    try:
        with mock.patch.dict(os.environ, variables):
            boto3.client("s3").create_bucket(Bucket="bucket")
            yield
    finally:
        server.stop()


@contextlib.contextmanager
def access_denied() -> Iterator[None]:
    """Makes the server reject the credentials of all processes."""
    with mock.patch("moto.settings.INITIAL_NO_AUTH_ACTION_COUNT", 0):
        yield

"""Hostile clients over plain sockets."""

import contextlib
import http.client
import json
import socket

PATIENCE = 60.0  # seconds until a client considers the server to hang
MODEL = "/v1/models/model"


def host_and_port(address):
    """Splits "host:port"."""
    host, _, port = address.rpartition(":")
    return host, int(port)


def head(size, method="POST", path=f"{MODEL}:predict"):
    """The head of a request with a body of `size` bytes."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close", f"Content-Length: {size}"]
    return "\r\n".join([*lines, "", ""]).encode()


def request(signature, **inputs):
    """A complete request in column format."""
    body = json.dumps({"signature_name": signature, "inputs": inputs}).encode()
    return head(len(body)) + body


@contextlib.contextmanager
def connect(address, source="127.0.0.1", buffer=0, seconds=PATIENCE):
    """Connects from a local address, with a timeout.

    The receive buffer has `buffer` bytes, or the default size.
    """
    with socket.socket() as connection:
        connection.bind((source, 0))
        if buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        connection.settimeout(seconds)
        connection.connect(host_and_port(address))
        yield connection


def status(connection):
    """Reads the status of a response, and not the rest."""
    return int(connection.recv(12).split()[1])


def ask(address, content, source="127.0.0.1", seconds=PATIENCE):
    """Sends bytes on a new connection; returns the status and the body of the response, or status 0 if it is closed.

    Raises a `TimeoutError` if neither happens in time.
    """
    with connect(address, source, seconds=seconds) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(content)
        response = http.client.HTTPResponse(connection)
        try:
            response.begin()
            return response.status, response.read()
        except (http.client.HTTPException, ConnectionError):
            return 0, b""


def get(address, path, source="127.0.0.1"):
    """Sends a GET request."""
    return ask(address, head(0, "GET", path), source)


def metric(server, name):
    """Reads a metric of the server."""
    text = get(server.rest, "/monitoring/prometheus/metrics")[1].decode()
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(f"{name} "))

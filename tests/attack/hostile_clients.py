"""Clients over bare sockets, which do what no library would."""

import contextlib
import http.client
import json
import socket

PATIENCE = 60.0  # seconds after which a client that waits takes the server to hang
MODEL = "/v1/models/model"


def place(address):
    """The host and the port of "host:port"."""
    host, _, port = address.rpartition(":")
    return host, int(port)


def head(size, method="POST", path=f"{MODEL}:predict"):
    """The head of a request whose body has so many bytes."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close", f"Content-Length: {size}"]
    return "\r\n".join([*lines, "", ""]).encode()


def request(signature, **inputs):
    """A whole request in column form."""
    body = json.dumps({"signature_name": signature, "inputs": inputs}).encode()
    return head(len(body)) + body


@contextlib.contextmanager
def connected(address, source="127.0.0.1", buffer=0, seconds=PATIENCE):
    """A connection from an address of this machine that waits for so long.

    It has a buffer of `buffer` bytes for what it is sent, or a usual one.
    """
    with socket.socket() as connection:
        connection.bind((source, 0))
        if buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        connection.settimeout(seconds)
        connection.connect(place(address))
        yield connection


def status(connection):
    """The status of an answer, of which not more is read."""
    return int(connection.recv(12).split()[1])


def ask(address, content, source="127.0.0.1", seconds=PATIENCE):
    """The status and the body of the answer to what is sent on a new connection; status 0 if it is closed instead.

    A `TimeoutError` if neither comes in so many seconds.
    """
    with connected(address, source, seconds=seconds) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(content)
        response = http.client.HTTPResponse(connection)
        try:
            response.begin()
            return response.status, response.read()
        except (http.client.HTTPException, ConnectionError):
            return 0, b""


def get(address, path, source="127.0.0.1"):
    """As `ask`, of a GET."""
    return ask(address, head(0, "GET", path), source)


def metric(server, name):
    """A number that the server counts."""
    text = get(server.rest, "/monitoring/prometheus/metrics")[1].decode()
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(f"{name} "))

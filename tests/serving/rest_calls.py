"""Calls of the REST interface, and its metrics."""

import contextlib
import json

MODEL = "/v1/models/toy"


def predict(client, body, where=MODEL):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return client.post(f"{where}:predict", content=content)


def metric(client, name):
    lines = client.get("/monitoring/prometheus/metrics").text.splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line.startswith(name)}


def events(response):
    """Yields the name, which is "" except for the last event, and the data of each event."""
    name = ""
    for line in response.iter_lines():
        if line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))
        name = line.removeprefix("event: ") if line.startswith("event: ") else ""


@contextlib.contextmanager
def open_stream(client, body, where=MODEL):
    with client.stream("POST", f"{where}:stream", content=json.dumps(body).encode()) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        assert "content-encoding" not in response.headers
        yield events(response)


def read_events(client, body, where=MODEL):
    with open_stream(client, body, where) as stream:
        return list(stream)

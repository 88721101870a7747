"""Requests of the REST interface, and what the server counts of them."""

import contextlib
import json

MODEL = "/v1/models/toy"


def predict(client, body, where=MODEL):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return client.post(f"{where}:predict", content=content)


def metric(client, name):
    lines = client.get("/monitoring/prometheus/metrics").text.splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line.startswith(name)}


def events(answer):
    """Pairs of a name, "" for what is not the last, and what was sent."""
    name = ""
    for line in answer.iter_lines():
        if line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))
        name = line.removeprefix("event: ") if line.startswith("event: ") else ""


@contextlib.contextmanager
def streamed(client, body, where=MODEL):
    with client.stream("POST", f"{where}:stream", content=json.dumps(body).encode()) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert "content-encoding" not in answer.headers
        yield events(answer)


def all_events(client, body, where=MODEL):
    with streamed(client, body, where) as found:
        return list(found)

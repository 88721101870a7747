"""Requests of the REST interface, and what the server counts of them."""

import json

MODEL = "/v1/models/toy"


def predict(client, body, where=MODEL):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return client.post(f"{where}:predict", content=content)


def metric(client, name):
    lines = client.get("/monitoring/prometheus/metrics").text.splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line.startswith(name)}

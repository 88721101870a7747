"""What the server says of its interface is what it does."""

import json
import re

import pytest

from t2t_keras.serving.http import openapi, responses
from tests.serving.rest_calls import all_events

VALUES = {"{model}": "toy", "{version}": "1", "{label}": "stable"}


@pytest.fixture
def description(client):
    answer = client.get("/openapi.json")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    return answer.json()


def filled(path: str) -> str:
    return re.sub(r"\{\w+\}", lambda match: VALUES[match[0]], path)


def test_every_path_is_there(client, description):
    """The toy has no labels, and says so."""
    assert description["openapi"].startswith("3.1") and len(description["paths"]) == 13
    example = description["components"]["schemas"]["Request"]["properties"]["inputs"]["examples"][0]
    for path, operations in description["paths"].items():
        where, found = filled(path), operations.get("get") or operations["post"]
        if where.endswith(":stream") and "/labels/" not in where:
            assert all_events(client, {"inputs": example}, where.removesuffix(":stream"))[-1][0] == "end"
            continue
        if "get" in operations:
            answer = client.get(where)
        else:
            answer = client.post(where, content=json.dumps({"inputs": example}).encode())
        assert answer.status_code == (400 if "/labels/" in where else 200), (where, answer.text)
        kind, *_ = answer.headers["content-type"].split(";")
        assert kind in found["responses"][str(answer.status_code)]["content"]


def test_errors_are_those_that_the_server_gives():
    assert {status for status in openapi._ERRORS if status not in (403, 413)} <= set(responses.STATUS.values())

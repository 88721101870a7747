"""The OpenAPI document describes what the server does."""

import json
import re

import pytest

from t2t_keras.serving.http import openapi, responses
from tests.serving.rest_calls import read_events

VALUES = {"{model}": "toy", "{version}": "1", "{label}": "stable"}


@pytest.fixture
def description(client):
    response = client.get("/openapi.json")
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    return response.json()


def fill_path(path: str) -> str:
    return re.sub(r"\{\w+\}", lambda match: VALUES[match[0]], path)


def test_every_documented_path_responds(client, description):
    assert description["openapi"].startswith("3.1") and len(description["paths"]) == 13
    example = description["components"]["schemas"]["Request"]["properties"]["inputs"]["examples"][0]
    for path, operations in description["paths"].items():
        url, operation = fill_path(path), operations.get("get") or operations["post"]
        assert operation["summary"].endswith(".")
        if url.endswith(":stream") and "/labels/" not in url:
            assert read_events(client, {"inputs": example}, url.removesuffix(":stream"))[-1][0] == "end"
            continue
        if "get" in operations:
            response = client.get(url)
        else:
            response = client.post(url, content=json.dumps({"inputs": example}).encode())
        assert response.status_code == (400 if "/labels/" in url else 200), (url, response.text)
        kind, *_ = response.headers["content-type"].split(";")
        assert kind in operation["responses"][str(response.status_code)]["content"]


def test_documented_errors_exist():
    assert {status for status in openapi._ERRORS if status not in (403, 413)} <= set(responses.STATUS.values())

"""The REST interface over real sockets: formats, errors and metrics."""

import base64
import gzip
import json
import socket

import numpy as np
import pytest

from t2t_keras.serving.server import listen
from tests.serving.rest_calls import MODEL, metric, predict


def test_rows_and_columns(client):
    translations = [{"translation": "OLLÄH", "score": -0.6}, {"translation": "日本", "score": -0.6}]
    for instances in (["hällo", "本日"], [{"text": "hällo"}, {"text": "本日"}]):
        response = predict(client, {"instances": instances})
        assert (response.status_code, response.json()) == (200, {"predictions": translations})
        assert response.headers["content-type"] == "application/json"
    for inputs in (["hällo", "本日"], {"text": ["hällo", "本日"]}):
        response = predict(client, {"inputs": inputs})
        assert response.json() == {"outputs": {"translation": ["OLLÄH", "日本"], "score": [-0.6, -0.6]}}


def test_single_outputs_are_written_without_their_name(client):
    rows = predict(client, {"signature_name": "nbest", "instances": ["a", "b"]})
    assert rows.json() == {"predictions": [["a", "A"], ["b", "B"]]}
    columns = predict(client, {"signature_name": "nbest", "inputs": ["a", "b"]})
    assert columns.json() == {"outputs": [["a", "A"], ["b", "B"]]}


def test_values_of_every_dtype(client):
    raw = base64.b64encode(b"\xff\x00").decode()
    rows = [{"number": 0.1, "flag": True, "raw": {"b64": raw}}, {"number": float("nan"), "flag": False, "raw": ""}]
    body = {"signature_name": "kinds", "instances": rows}
    first, second = predict(client, body).json()["predictions"]
    assert first == {"number": 0.1, "flag": True, "raw_bytes": {"b64": raw}, "int64": 1}
    assert np.isnan(second.pop("number"))
    assert second == {"flag": False, "raw_bytes": {"b64": ""}, "int64": 0}


def test_several_inputs_and_a_second_dimension_of_any_size(client):
    rows = [{"ids": [1, 2, 3], "length": 2}, {"ids": [4, 5, 6], "length": 3}]
    response = predict(client, {"signature_name": "tokens", "instances": rows})
    assert response.json() == {"predictions": [{"reversed": [2, 1, 3], "sum": 6}, {"reversed": [6, 5, 4], "sum": 15}]}
    empty = predict(client, {"signature_name": "pieces", "instances": ["", ""]})
    assert empty.json() == {"predictions": [[], []]}


def test_invalid_utf8_is_returned_as_base64(client):
    raw = base64.b64encode(b"\xe2\x28").decode()
    response = predict(client, {"signature_name": "nbest", "instances": [{"b64": raw}]})
    assert response.json()["predictions"][0][0] == {"b64": raw}


def test_request_larger_than_a_batch(client):
    texts = [f"text {number}" for number in range(40)]
    response = predict(client, {"instances": texts}).json()["predictions"]
    assert [row["translation"] for row in response] == [text.upper()[::-1] for text in texts]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", ["JSON"]),
        (b'{"instances": [', ["JSON"]),
        (b'{"instances": ["\xff"]}', ["UTF-8", "byte 16"]),
        (b'{"instances": ["\\ud800"]}', ["'text'", "Unicode"]),
        (b"[" * 10_000, ["JSON"]),
        (b"9" * 5_000, ["JSON"]),
        (["a"], ["object"]),
        ({}, ["exactly one", "'instances'", "'inputs'"]),
        ({"instances": ["a"], "inputs": ["a"]}, ["exactly one"]),
        ({"instances": []}, ["'instances'", "at least one"]),
        ({"instances": "a"}, ["'instances'", "list"]),
        ({"inputs": []}, ["empty"]),
        ({"inputs": "a"}, ["'text'", "[any]", "[]"]),
        ({"inputs": {"text": []}}, ["empty"]),
        ({"inputs": {}}, ["missing", "'text'"]),
        ({"inputs": {"text": ["a"], "txt": ["b"]}}, ["unknown", "'txt'"]),
        ({"instances": [{"txt": "a"}]}, ["element 0", "unknown: 'txt'", "missing: 'text'"]),
        ({"instances": [{"text": "a"}, "b"]}, ["element 1", "'text'"]),
        ({"instances": [{"text": "a"}, {}]}, ["element 1", "missing: 'text'"]),
        ({"instances": ["a", 3]}, ["'text'", "string", "3"]),
        ({"instances": [None]}, ["'text'", "string", "null"]),
        ({"instances": [{"b64": "%"}]}, ["'text'", "base64"]),
        ({"instances": [{"b64": 3}]}, ["'text'", "string"]),
        ({"instances": [["a"]]}, ["'text'", "nested too deep", "1"]),
        ({"instances": ["a", ["b"]]}, ["'text'", "string"]),
        ({"instances": ["a"], "signature_name": "nothing"}, ["nothing", "'serving_default'"]),
        ({"instances": ["a"], "signature_name": 3}, ["'signature_name'"]),
        ({"instances": ["a"], "signature_name": "tokens"}, ["element 0", "'ids', 'length'"]),
        ({"inputs": ["a"], "signature_name": "tokens"}, ["'ids', 'length'"]),
        ({"inputs": {"ids": [[1], [1, 2]], "length": [1, 1]}, "signature_name": "tokens"}, ["'ids'", "same length"]),
        ({"inputs": {"ids": [[1], 2], "length": [1, 1]}, "signature_name": "tokens"}, ["'ids'", "same length"]),
        ({"inputs": {"ids": [[1.0]], "length": [1]}, "signature_name": "tokens"}, ["'ids'", "integer", "1.0"]),
        ({"inputs": {"ids": [[True]], "length": [1]}, "signature_name": "tokens"}, ["'ids'", "integer", "true"]),
        ({"inputs": {"ids": [[2**31]], "length": [1]}, "signature_name": "tokens"}, ["'ids'", "int32"]),
        ({"inputs": {"ids": [1], "length": [1]}, "signature_name": "tokens"}, ["'ids'", "[any, any]", "[1]"]),
        ({"inputs": {"text": ["a"], "seed": [1, 2]}, "signature_name": "sample"}, ["same", "'seed' has 2"]),
        ({"inputs": {"number": [10**400], "flag": [True], "raw": [""]}, "signature_name": "kinds"}, ["'number'"]),
        ({"inputs": {"number": ["1"], "flag": [True], "raw": [""]}, "signature_name": "kinds"}, ["'number'"]),
        ({"inputs": {"number": [1], "flag": [1], "raw": [""]}, "signature_name": "kinds"}, ["'flag'", "true"]),
        ({"instances": ["good", "bad"], "signature_name": "picky"}, ["no such word"]),
        ({"instances": ["a"] * 41}, ["41 sentences", "max_sentences=40"]),
        ({"instances": ["a", "ä" * 151]}, ["string 1", "302 bytes", "max_sentence_bytes=300"]),
        ({"inputs": {"ids": [[1] * 51] * 2, "length": [1] * 2}, "signature_name": "tokens"}, ["51 numbers", "=50"]),
        ({"inputs": {"ids": [[1], [2]], "length": [1]}, "signature_name": "tokens"}, ["same", "'length' has 1"]),
        ({"instances": ["a"] * 39 + ["a" * 300], "signature_name": "square"}, ["900000 elements", "40 sentences"]),
        ({"instances": ["a" * 300] * 4, "signature_name": "square"}, ["have 360000 elements", "=100000"]),
        ({"instances": [{"ids": [[1]] * 41, "length": 1}], "signature_name": "tokens"}, ["'ids'", "nested too deep"]),
    ],
)
def test_errors_of_invalid_bodies(client, body, words):
    response = predict(client, body)
    assert response.status_code == 400, response.text
    assert response.headers["content-type"] == "application/json"
    assert list(response.json()) == ["error"]
    assert all(word in response.json()["error"] for word in words), response.json()["error"]
    assert "\n" not in response.json()["error"]


def test_row_format_without_rows(client):
    """The row format is rejected only if the outputs have no rows."""
    body = {"signature_name": "total", "instances": ["a", "bc"]}
    assert predict(client, body).json()["error"].startswith("these outputs have no common rows")
    del body["instances"]
    assert predict(client, {**body, "inputs": ["a", "bc"]}).json() == {"outputs": 3}


@pytest.mark.parametrize(
    ("method", "path", "status", "words"),
    [
        ("POST", "/v1/models/other:predict", 404, "Servable not found for request: Latest(other)"),
        ("POST", f"{MODEL}/versions/7:predict", 404, "Servable not found for request: Specific(toy, 7)"),
        ("POST", f"{MODEL}/labels/stable:predict", 400, "label: stable"),
        ("POST", f"{MODEL}/versions/99999999999999999999:predict", 400, "Failed to convert version"),
        ("POST", f"{MODEL}:classify", 501, "classify is not supported"),
        ("POST", f"{MODEL}:regress", 501, "regress is not supported"),
        ("POST", MODEL, 400, "Malformed request: POST /v1/models/toy"),
        ("POST", f"{MODEL}:explain", 400, "Malformed request"),
        ("GET", f"{MODEL}:predict", 400, "Malformed request: GET"),
        ("DELETE", f"{MODEL}:predict", 400, "Malformed request: DELETE"),
        ("GET", "/v1/models", 400, "Malformed request"),
        ("GET", "/v1/models/other", 404, "Could not find any versions of model other"),
        ("GET", f"{MODEL}/versions/7", 404, "Could not find version 7 of model toy"),
        ("GET", f"{MODEL}/versions/7/metadata", 404, "Specific(toy, 7)"),
        ("GET", f"{MODEL}/labels/stable", 400, "label: stable"),
        ("GET", "/v1/models/..%2f..", 404, "../.."),
        ("GET", "/nothing/here", 404, "/nothing/here"),
        ("GET", "/" + "a" * 5000, 404, "aaa..."),
        ("POST", "/monitoring/prometheus/metrics", 405, "POST"),
    ],
)
def test_unknown_paths(client, method, path, status, words):
    response = client.request(method, path, content=b'{"instances": ["a"]}')
    assert (response.status_code, list(response.json())) == (status, ["error"])
    assert words in response.json()["error"]


def test_foreign_hosts_are_rejected(client):
    for path in (MODEL, "/", "/server.json", "/monitoring/prometheus/metrics"):
        response = client.get(path, headers={"Host": "rebound.example"})
        assert response.status_code == 403 and "'rebound.example'" in response.json()["error"]
    response = client.post(f"{MODEL}:predict", json={"instances": ["a"]}, headers={"Origin": "https://other.example"})
    assert response.status_code == 403 and "'https://other.example'" in response.json()["error"]


def test_status(client):
    version = {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
    for path in (MODEL, f"{MODEL}/versions/1"):
        assert client.get(path).json() == {"model_version_status": [version]}
    about = {"model": "toy", "version": 1, "max_sentences": 40, "max_sentence_bytes": 300}
    assert client.get("/server.json").json() == about


@pytest.mark.parametrize("part", ["bytes=9999999-", "bytes=0-3", "x"])
def test_files_of_the_page_ignore_ranges_and_have_a_security_policy(client, part):
    response = client.get("/", headers={"Range": part})
    assert (response.status_code, response.headers["accept-ranges"]) == (200, "none")
    assert response.headers["content-security-policy"].startswith("default-src 'self';")
    assert response.headers["cache-control"] == "no-cache" and response.content == client.get("/").content


def test_internal_errors_are_json(client, server, monkeypatch):
    monkeypatch.setattr(server.core.metrics, "text", lambda: 1 / 0)
    response = client.get("/monitoring/prometheus/metrics")
    assert (response.status_code, response.json()) == (500, {"error": "ZeroDivisionError: division by zero"})
    assert response.headers["connection"] == "close"


def test_connections_use_tcp_nodelay():
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_metadata(client):
    response = client.get(f"{MODEL}/metadata").json()
    assert response == client.get(f"{MODEL}/versions/1/metadata").json()
    assert response["model_spec"] == {"name": "toy", "signature_name": "", "version": "1"}
    signature = response["metadata"]["signature_def"]["signature_def"]["nbest"]
    assert signature["inputs"]["text"]["dtype"] == "DT_STRING"
    assert signature["method_name"] == "tensorflow/serving/predict"
    sizes = [dim["size"] for dim in signature["outputs"]["translations"]["tensor_shape"]["dim"]]
    assert sizes == ["-1", "2"]


def test_requests_for_a_version(client):
    response = predict(client, {"signature_name": "single", "inputs": ["a"]}, f"{MODEL}/versions/1")
    assert response.json() == {"outputs": [1]}


def test_gzipped_bodies(client):
    body = gzip.compress(json.dumps({"instances": ["abc"]}).encode())
    response = client.post(f"{MODEL}:predict", content=body, headers={"Content-Encoding": "gzip"})
    assert response.json()["predictions"][0]["translation"] == "CBA"


@pytest.mark.parametrize(
    ("body", "encoding", "status", "words"),
    [
        (gzip.compress(b" " * 10_000_000, mtime=0), "gzip", 413, "decompression: the limit is max_body_bytes=20000"),
        (b"not compressed", "gzip", 400, "not valid gzip"),
        (gzip.compress(b'{"instances": ["a"]}', mtime=0)[:-9], "gzip", 400, "truncated"),
        (gzip.compress(b"{}", mtime=0) + gzip.compress(b"{}", mtime=0), "gzip", 400, "22 bytes follow"),
        (b"{}", "br", 400, "'br'"),
    ],
    ids=["too_large", "not_compressed", "truncated", "two_members", "unknown_encoding"],
)
def test_invalid_compressed_bodies(client, body, encoding, status, words):
    response = client.post(f"{MODEL}:predict", content=body, headers={"Content-Encoding": encoding})
    assert response.status_code == status and words in response.json()["error"]


@pytest.mark.parametrize(
    ("signature", "size", "accepted", "encoding"),
    [
        ("nbest", 300, "gzip", "gzip"),
        ("square", 300, "deflate, gzip;q=0.5", "gzip"),  # large enough to be written in pieces
        ("nbest", 300, "identity", None),
        ("nbest", 3, "gzip", None),
    ],
)
def test_large_responses_are_compressed_if_the_client_accepts_it(client, signature, size, accepted, encoding):
    body = {"signature_name": signature, "inputs": ["a" * size] * (1 if signature == "square" else 5)}
    headers = {"Accept-Encoding": accepted}
    with client.stream("POST", f"{MODEL}:predict", json=body, headers=headers) as response:
        raw = b"".join(response.iter_raw())
    assert (response.status_code, response.headers.get("content-encoding")) == (200, encoding)
    assert "content-length" not in response.headers or int(response.headers["content-length"]) == len(raw)
    plain = predict(client, body).json()
    assert json.loads(gzip.decompress(raw) if encoding else raw) == plain
    assert not encoding or 3 * len(raw) < len(json.dumps(plain))


@pytest.mark.parametrize("chunked", [False, True])
def test_body_larger_than_the_limit(client, chunked):
    body = b" " * 10_000_000
    content = (body[start : start + 100_000] for start in range(0, len(body), 100_000)) if chunked else body
    response = client.post(f"{MODEL}:predict", content=content)
    assert response.status_code == 413
    size = "more than 20000" if chunked else "10000000"
    assert response.json() == {"error": f"the body has {size} bytes: the limit is max_body_bytes=20000"}
    assert predict(client, {"instances": ["a"]}).status_code == 200


def test_large_body_with_expect_100_continue(server):
    """curl sends large bodies with this header."""
    with socket.create_connection(server.rest_address.split(":"), timeout=300) as connection:
        head = f"POST {MODEL}:predict HTTP/1.1\r\nHost: localhost\r\n"
        connection.sendall(f"{head}Content-Length: 10000000\r\nExpect: 100-continue\r\n\r\n".encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 413 ")


def test_requests_are_counted(client):
    def count():
        return metric(client, "t2t_serving_requests_total")

    before, rows = count(), metric(client, "t2t_serving_sentences_total")
    predict(client, {"instances": ["a", "b", "c"]})
    predict(client, {"instances": [3]})
    predict(client, {"instances": [3], "signature_name": "of their making"})
    after = count()
    changed = {key: after[key] - before.get(key, 0) for key in after if after[key] != before.get(key)}
    assert sorted(changed.values()) == [1, 1, 1]
    expected = [("OK", "serving_default"), ("INVALID_ARGUMENT", "serving_default"), ("INVALID_ARGUMENT", "unknown")]
    for outcome, signature in expected:
        assert f't2t_serving_requests_total{{interface="rest",outcome="{outcome}",signature="{signature}"}}' in changed
    assert metric(client, "t2t_serving_sentences_total")["t2t_serving_sentences_total"] >= 3 + sum(rows.values())
    assert metric(client, "t2t_serving_version")["t2t_serving_version"] == 1
    assert metric(client, "t2t_serving_queue_sentences")["t2t_serving_queue_sentences"] == 0
    assert metric(client, "t2t_serving_latency_seconds_count")


def test_requests_rejected_before_parsing_are_counted(client):
    def count(outcome):
        name = "t2t_serving_requests_total"
        counts = metric(client, name)
        return counts.get(f'{name}{{interface="rest",outcome="{outcome}",signature="unknown"}}', 0)

    before = {outcome: count(outcome) for outcome in ("RESOURCE_EXHAUSTED", "UNIMPLEMENTED")}
    assert client.post(f"{MODEL}:predict", content=b" " * 30_000).status_code == 413
    assert client.post(f"{MODEL}:classify", content=b"{}").status_code == 501
    assert all(count(outcome) == before[outcome] + 1 for outcome in before)


def test_metrics_with_the_names_of_tensorflow_serving(client):
    count = ':tensorflow:serving:request_count{model_name="toy",status="OK"}'
    labels = '{API="Predict",entrypoint="REST",model_name="toy"}'
    before = metric(client, ":tensorflow:serving:request_count").get(count, 0)
    predict(client, {"instances": ["a"]})
    assert metric(client, ":tensorflow:serving:request_count")[count] == before + 1
    latency = metric(client, ":tensorflow:serving:request_latency")
    requests = latency[f":tensorflow:serving:request_latency_count{labels}"]
    microseconds = sum(value for name, value in latency.items() if "_sum{" in name)
    seconds = sum(metric(client, "t2t_serving_latency_seconds_sum").values())
    assert requests >= 1 and microseconds == pytest.approx(1e6 * seconds)
    assert (
        ':tensorflow:serving:request_latency_bucket{API="Predict",entrypoint="REST",le="10.0",model_name="toy"}'
        in latency
    )


def test_invalid_http_is_rejected(server, client):
    with socket.create_connection(server.rest_address.split(":"), timeout=300) as connection:
        connection.sendall(b"\x16\x03\x01\x02\x00\x01\r\n\r\n")
        assert b" 400 " in connection.recv(1000)
    assert client.get(MODEL).status_code == 200


def test_body_of_exactly_the_limit(client):
    body = b'{"instances": ["a"]}'
    assert predict(client, body.ljust(20_000)).status_code == 200
    assert predict(client, body.ljust(20_001)).status_code == 413

"""Tests of launch.serve: messages, signals, and finishing running requests."""

import concurrent.futures
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time

import httpx
import pytest

from tests import programs
from tests.programs import assert_error, run_cases
from tests.waiting import wait_until

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def export_dir(tmp_path_factory):
    from tests.serving import toy

    folder = tmp_path_factory.mktemp("serve") / "toy"
    toy.save(folder, 5)
    return folder


class Program:
    """The program in a separate process."""

    def __init__(self, *arguments, stdout=subprocess.PIPE, preexec_fn=None):
        self.process = programs.Program(
            ["-m", "launch.serve", "--rest_port=0", "--grpc_port=0", *arguments],
            stdout=stdout,
            preexec_fn=preexec_fn,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        )

    def wait_until_started(self):
        self.line = self.process.stdout.readline()
        self.rest, self.grpc = re.search(r"REST at (http://\S+), gRPC at (\S+)", self.line).groups()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=300)

    def predict(self, signature, *texts):
        body = {"signature_name": signature, "inputs": texts}
        return httpx.post(f"{self.rest}/v1/models/toy:predict", json=body, timeout=300)

    def metric(self, name):
        lines = httpx.get(f"{self.rest}/monitoring/prometheus/metrics", timeout=300).text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(f"{name} "))

    def wait_until(self, name, value):
        wait_until(lambda: self.metric(name) == value)


def start(*arguments):
    program = Program(*arguments)
    program.wait_until_started()
    return program


def save_endless_warm_up(export_dir, path):
    """Writes a version whose warm-up waits at a gate for the rest of the test."""
    from tensorflow_serving.apis import model_pb2, predict_pb2, prediction_log_pb2

    from tests.serving import toy

    shutil.copytree(export_dir / "5", path.with_name(".new"))
    request = predict_pb2.PredictRequest(model_spec=model_pb2.ModelSpec(signature_name="gate"))
    request.inputs["text"].CopyFrom(toy.tf.make_tensor_proto([str(path / "never")]))
    log = prediction_log_pb2.PredictionLog(predict_log=prediction_log_pb2.PredictLog(request=request))
    (path.with_name(".new") / "assets.extra").mkdir()
    records = path.with_name(".new") / "assets.extra" / "tf_serving_warmup_requests"
    with toy.tf.io.TFRecordWriter(str(records)) as writer:
        writer.write(log.SerializeToString())
    path.with_name(".new").rename(path)


def wait_for_line(program, words):
    for line in program.process.stderr:
        if words in line:
            return
    raise AssertionError(f"ended without {words!r}")


def test_sigterm_while_the_first_version_loads(export_dir, tmp_path):
    save_endless_warm_up(export_dir, tmp_path / "1")
    with Program(f"--export_dir={tmp_path}", "--name=toy") as program:
        wait_for_line(program, "loading version 1 of toy")
        time.sleep(1)
        program.process.send_signal(signal.SIGTERM)
        out, err = program.process.communicate(timeout=300)
        assert (program.process.returncode, out) == (0, "stopped before a version was loaded\n")
        assert "Traceback" not in err


def test_sigterm_while_a_new_version_loads(export_dir, tmp_path):
    shutil.copytree(export_dir / "5", tmp_path / "5")
    with start(f"--export_dir={tmp_path}", "--name=toy", "--poll_seconds=0.05") as program:
        save_endless_warm_up(export_dir, tmp_path / "6")
        wait_for_line(program, "loading version 6 of toy")
        assert program.predict("single", "a").json() == {"outputs": [5]}
        program.process.send_signal(signal.SIGTERM)
        out, err = program.process.communicate(timeout=300)
        assert (program.process.returncode, out) == (0, "stopped\n")
        assert "Traceback" not in err


def test_sigterm_under_load_finishes_running_requests(export_dir, tmp_path):
    gate = tmp_path / "open"
    arguments = [f"--export_dir={export_dir}", "--num_streams=1", "--max_batch_size=2"]
    with start(*arguments) as program, concurrent.futures.ThreadPoolExecutor(12) as pool:
        assert "serving toy (version 5)" in program.line
        running = pool.submit(program.predict, "gate", str(gate))
        program.wait_until("t2t_serving_batch_sentences_count", 1)
        waiting = [pool.submit(program.predict, "single", f"text {number}") for number in range(10)]
        program.wait_until("t2t_serving_queue_sentences", 10)
        program.process.send_signal(signal.SIGTERM)
        end = time.monotonic() + 300
        while True:  # until the server refuses connections
            assert time.monotonic() < end
            try:
                httpx.get(f"{program.rest}/v1/models/toy", timeout=5)
            except httpx.TransportError:
                break
            time.sleep(0.02)
        assert program.process.poll() is None
        gate.write_text("")
        assert running.result(300).status_code == 200
        responses = [future.result(300) for future in waiting]
        assert [(response.status_code, response.json()) for response in responses] == [(200, {"outputs": [5]})] * 10
        out, err = program.process.communicate(timeout=300)
        assert (program.process.returncode, out) == (0, "stopped\n")
        assert "Traceback" not in err


def test_endless_requests_do_not_block_stopping(export_dir, tmp_path):
    arguments = [f"--export_dir={export_dir}", "--grace_seconds=1"]
    with start(*arguments) as program, concurrent.futures.ThreadPoolExecutor(1) as pool:
        unfinished = pool.submit(program.predict, "gate", str(tmp_path / "never"))
        program.wait_until("t2t_serving_batch_sentences_count", 1)
        program.process.send_signal(signal.SIGINT)
        out, _ = program.process.communicate(timeout=300)
        assert (program.process.returncode, out) == (0, "stopped; some requests were not answered within 1 s\n")
        response = unfinished.result(300)
        assert (response.status_code, response.json()) == (503, {"error": "the server is stopping"})


def test_server_waits_for_a_loadable_version(export_dir, tmp_path):
    empty = tmp_path / "other"
    (empty / "1").mkdir(parents=True)
    with start(f"--export_dir={empty}", "--name=toy", "--poll_seconds=0.05") as program:
        assert "serving toy (no version yet, waiting for one)" in program.line
        assert program.predict("single", "a").status_code == 404
        response = httpx.get(f"{program.rest}/v1/models/toy")
        assert response.status_code == 503  # readiness probes must fail
        (status,) = response.json()["model_version_status"]
        assert status["state"] == "END" and "saved_model.pb" in status["status"]["error_message"]
        os.symlink(export_dir / "5", empty / "5")
        program.wait_until("t2t_serving_version", 5)
        assert program.predict("single", "a").json() == {"outputs": [5]}
        assert httpx.get(f"{program.rest}/v1/models/toy").status_code == 200
        program.process.send_signal(signal.SIGTERM)
        _, err = program.process.communicate(timeout=300)
        assert program.process.returncode == 0
        assert "version 1 of toy cannot be loaded" in err and "serving version 5 of toy" in err


def test_json_log(tmp_path):
    (tmp_path / "other" / "1").mkdir(parents=True)
    with start(f"--export_dir={tmp_path}/other", "--log_format=json") as program:
        assert httpx.get(f"{program.rest}/nowhere").status_code == 404
        program.process.send_signal(signal.SIGTERM)
        out, err = program.process.communicate(timeout=300)
    lines = [json.loads(line) for line in [program.line, *out.splitlines(), *err.splitlines()]]
    assert all(list(line) == ["time", "level", "message"] for line in lines)
    assert {line["time"][-6:] for line in lines} == {"+00:00"}
    levels = [line["level"] for line in lines]
    assert levels == ["INFO", "INFO", "INFO", "ERROR", "WARNING"], lines
    assert [lines[0]["message"][:13], lines[1]["message"]] == ["serving other", "stopped"]


@pytest.fixture(scope="module")
def refusals(export_dir, tmp_path_factory):
    fitted = tmp_path_factory.mktemp("fitted")
    (fitted / "serving").mkdir()
    os.symlink(export_dir, fitted / "serving" / "mine")
    os.symlink(export_dir / "5", fitted / "bare")
    export = f"--export_dir={export_dir}"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        cases = {
            "no_dir": [],
            "missing": ["--export_dir=/nowhere/mine"],
            "version": [f"{export}/5"],
            "above": [f"--export_dir={export_dir.parent}"],
            "fitted": [f"--export_dir={fitted}"],
            "bare": [f"--export_dir={fitted}/bare"],
            "file": [f"--export_dir={__file__}"],
            "batch": [export, "--max_batch_size=0"],
            "queue": [export, "--max_queue_bytes=0"],
            "seconds": [export, "--request_seconds=0"],
            "port": [export, "--rest_port=70000"],
            "poll": [export, "--poll_seconds=0"],
            "streams": [export, "--num_streams=0"],
            "retries": [export, "--max_num_load_retries=-1"],
            "hosts": [export, "--allowed_hosts=http://translate.example"],
            "gateways": [export, "--gateways=10.0.0.1/8"],
            "both": [export, f"--model_config_file={__file__}"],
            "config": ["--model_config_file=/nowhere/models.config"],
            "tls": [export, f"--tls_certificate={__file__}"],
            "no_tls": [export, "--tls_certificate=/nowhere/chain.pem", f"--tls_key={__file__}"],
            "keys": [export, "--api_key_file=/nowhere/keys"],
            "bytes": [export, "--max_body_bytes=0"],
            "rest_taken": [export, f"--rest_port={port}", "--grpc_port=0"],
            "grpc_taken": [export, "--rest_port=0", f"--grpc_port={port}"],
            "host": [export, "--host=256.1.1.1", "--rest_port=0", "--grpc_port=0"],
        }
        outcomes = run_cases("launch.serve", [(arguments, b"") for arguments in cases.values()])
    return dict(zip(cases, outcomes, strict=True))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no_dir", ["--export_dir"]),
        ("missing", ["--export_dir=/nowhere/mine: no such folder"]),
        ("file", ["test_serve.py is a file; give a folder"]),
        ("version", ["/toy/5 contains no numbered versions; give --export_dir=", "/toy\n"]),
        ("above", ["contains no numbered versions; give --export_dir=", "/toy\n"]),
        ("fitted", ["contains no numbered versions; give --export_dir=", "/serving/mine\n"]),
        ("bare", ["/bare is a single SavedModel; move its files to /", "/bare/1\n"]),
        ("batch", ["--max_batch_size must be a whole number of at least 1, got 0"]),
        ("queue", ["--max_queue_bytes must be a whole number of at least 1, got 0"]),
        ("seconds", ["request_seconds", "0"]),
        ("port", ["rest_port", "70000"]),
        ("poll", ["poll_seconds", "0"]),
        ("streams", ["num_streams", "0"]),
        ("retries", ["max_num_load_retries", "-1"]),
        ("hosts", ["allowed_hosts", "http://translate.example"]),
        ("gateways", ["gateways", "10.0.0.1/8 has host bits set"]),
        ("both", ["export_dir", "model_config_file"]),
        ("config", ["--model_config_file=/nowhere/models.config: no such file"]),
        ("tls", ["tls_certificate", "tls_key"]),
        ("no_tls", ["--tls_certificate=/nowhere/chain.pem: no such file"]),
        ("keys", ["--api_key_file=/nowhere/keys: no such file"]),
        ("bytes", ["max_body_bytes", "0"]),
        ("rest_taken", ["cannot listen on 127.0.0.1:"]),
        ("grpc_taken", ["cannot listen on 127.0.0.1:"]),
        ("host", ["cannot listen on 256.1.1.1:0"]),
    ],
)
def test_errors(refusals, name, words):
    assert_error(refusals[name], *words)

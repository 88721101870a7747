"""A server of an export in a separate process, and requests to it."""

import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Self

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from benchmarks.turns import last_line

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_READY = re.compile(r"serving \S+ \(version .*\): REST at http://(\S+), gRPC at (\S+)")
_TICKS = os.sysconf("SC_CLK_TCK")

Outputs = dict[str, list]


class Served:
    """A context in which `python -m launch.serve` runs at free ports.

    Args:
        export_dir: directory of a model with its versions.
        log_path: file for the output of the server.
        flags: additional flags of the server.

    Attributes:
        rest: "host:port" of the REST interface.
        grpc: "host:port" of the gRPC interface.
        pid: number of the process.
        log_path: file with the output of the server.
    """

    def __init__(self, export_dir: str, log_path: str, *flags: str) -> None:
        command = [sys.executable, "-m", "launch.serve", f"--export_dir={export_dir}", "--name=model", *flags]
        with open(log_path, "w") as log:
            self._process = subprocess.Popen(
                [*command, "--rest_port=0", "--grpc_port=0"], cwd=_ROOT, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self._process.stdout
        match = _READY.match(self._process.stdout.readline())
        if not match:
            self._process.wait()
            line = last_line(pathlib.Path(log_path).read_text(encoding="utf-8"))
            raise RuntimeError(f"the server does not start: {line}")  # the log may be deleted with its folder
        self.rest, self.grpc = match.groups()
        self.pid, self.log_path = self._process.pid, log_path

    def __enter__(self) -> "Served":
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def alive(self) -> bool:
        """Whether the server still runs."""
        return self._process.poll() is None

    @property
    def cpu_seconds(self) -> float:
        """Processor time of the server."""
        with open(f"/proc/{self._process.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    @property
    def memory_bytes(self) -> int:
        """Memory of the server, without pages of files."""
        with open(f"/proc/{self.pid}/status") as file:
            return next(int(line.split()[1]) << 10 for line in file if line.startswith("RssAnon:"))

    @property
    def log(self) -> str:
        """The output so far."""
        with open(self.log_path, encoding="utf-8") as file:
            return file.read()

    def tell_to_stop(self) -> float:
        """Sends SIGTERM; returns the time."""
        self._process.send_signal(signal.SIGTERM)
        return time.monotonic()

    def stop(self) -> int:
        """Stops the server by SIGTERM; returns its exit status."""
        if self.alive:
            self._process.terminate()
        return self._process.wait(timeout=60)


class RestError(Exception):
    """An answer with a status other than 200; has the status and the message."""


def post(address: str, body: bytes, path: str = "/v1/models/model:predict", timeout: float = 60) -> tuple[int, Any]:
    """Sends a POST request on a new connection; returns the status and the JSON of the answer."""
    return _request(address, "POST", path, body, timeout)


def get(address: str, path: str) -> tuple[int, Any]:
    """Like `post`, for a GET request."""
    return _request(address, "GET", path, None, 60)


def _request(address: str, method: str, path: str, body: bytes | None, timeout: float) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(address, timeout=timeout)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json", "Connection": "close"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


class Clients:
    """A context in which clients run, each in a thread.

    Args:
        works: the function of each client, which returns once `over` is set.

    Attributes:
        over: set at the end of the context.
    """

    def __init__(self, works: Iterable[Callable[[], None]]) -> None:
        self.over = threading.Event()
        self._threads = [threading.Thread(target=work) for work in works]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.over.set()
        for thread in self._threads:
            thread.join()


def ask_rest(address: str, signature: str, inputs: dict[str, list]) -> Outputs:
    """Returns the outputs of a signature through REST.

    Raises:
        RestError: the server refuses.
    """
    status, answer = post(address, json.dumps({"signature_name": signature, "inputs": inputs}).encode())
    if status != 200:
        raise RestError(status, answer.get("error", ""))
    return answer["outputs"]


def ask_grpc(channel: grpc.Channel, signature: str, inputs: dict[str, list]) -> Outputs:
    """Returns the outputs of a signature through gRPC, in the form of REST.

    Raises:
        grpc.RpcError: the server refuses.
    """
    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = "model", signature
    for name, values in inputs.items():
        # The seed of `sample` has 64 bits, all other integers have 32.
        kind = tf.int64 if name == "seed" else None
        request.inputs[name].CopyFrom(tf.make_tensor_proto(values, kind))
    response = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(request, timeout=60)
    return {name: _as_json(tf.make_ndarray(tensor)) for name, tensor in response.outputs.items()}


def _as_json(array: np.ndarray) -> list:
    if array.dtype == object:
        flat = [value.decode() for value in array.reshape(-1)]
        return np.array(flat, dtype=object).reshape(array.shape).tolist()
    return array.tolist()


def same(left: Outputs, right: Outputs) -> bool:
    """Returns whether two answers are equal: strings and integers exactly, other numbers within 1e-4."""
    if left.keys() != right.keys():
        return False
    for name, value in left.items():
        a, b = (np.array(values, dtype=object) for values in (value, right[name]))
        if a.shape != b.shape or not all(map(_equal, a.reshape(-1), b.reshape(-1))):
            return False
    return True


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, float) or isinstance(b, float):
        return abs(a - b) <= 1e-4 * max(1.0, abs(a))
    return a == b

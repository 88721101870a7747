"""Tests a real server with faulty requests and versions, and with a stop under load; see `serving.py --faults`."""

import collections
import concurrent.futures
import contextlib
import functools
import http.client
import json
import os
import random
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import grpc

from benchmarks.serving_process import Clients, Outputs, RestError, Served, ask_grpc, ask_rest, get, post, same

_CLIENTS = 32
_MIXED_REQUESTS = 2000
_DISCONNECTS = 100
_NEW_VERSION_SECONDS = 300
_STOP_AFTER = 1.5  # seconds of load before SIGTERM
_TAKEN = 0.2  # seconds after which a request has certainly arrived


def print_faults(export_dir: str, sentences: Sequence[str], folder: str) -> None:
    """Prints the table of all faults.

    Args:
        export_dir: directory of a model; its newest version is copied, so that versions can be damaged.
        sentences: sentences to translate in the meantime.
        folder: folder for files.
    """
    copy = os.path.join(folder, "model")
    newest = max((name for name in os.listdir(export_dir) if name.isdecimal()), key=int)
    shutil.copytree(os.path.join(export_dir, newest), os.path.join(copy, "1"))
    print("| fault | answer | the server then |")
    print("|---|---|---|")
    with Served(copy, os.path.join(folder, "server.log"), "--poll_seconds=0.5") as server:
        known = KnownAnswers(server, sentences)
        for name, fault in faults(server, known, copy):
            answer, after = "none", "**does not answer**"
            with contextlib.suppress(OSError, http.client.HTTPException, RestError, grpc.RpcError):
                answer = fault()
                after = "answers as before" if known.still_answers() else "**answers differently**"
            print(f"| {name} | {answer} | {after if server.alive else '**has ended**'} |", flush=True)
            if not server.alive:
                return
        print(f"| SIGTERM under load | {stopped_under_load(server, known)} | exit status {server.stop()} |")


class KnownAnswers:
    """Requests of several signatures, and the answers to each single request.

    Args:
        server: the server, which gets one request after another.
        sentences: the texts.
    """

    def __init__(self, server: Served, sentences: Sequence[str]) -> None:
        self._server = server
        self.requests: list[tuple[str, dict[str, list]]] = []
        for at, sentence in enumerate(sentences[:200]):
            signature = ("serving_default", "nbest", "serving_default", "align", "sample")[at % 5]
            inputs: dict[str, list] = {"text": [sentence]}
            if signature == "sample":
                inputs["seed"] = [at]
            elif at % 10 == 0:
                inputs["text"] = list(sentences[at : at + 3])
            self.requests.append((signature, inputs))
        self.answers = [ask_rest(server.rest, *request) for request in self.requests]

    def still_answers(self) -> bool:
        """Returns whether a request still gets the same answer."""
        return same(ask_rest(self._server.rest, *self.requests[0]), self.answers[0])


def faults(server: Served, known: KnownAnswers, export_dir: str) -> Iterable[tuple[str, Callable[[], str]]]:
    """Yields the name of each fault with a function that causes it and returns the server's answer."""
    text = "A man is walking."

    def body(**content: Any) -> bytes:
        return json.dumps(content).encode()

    requests = {
        "malformed JSON": b'{"instances": ["A man',
        "JSON that is not an object": b"[1, 2]",
        "neither `instances` nor `inputs`": b"{}",
        "invalid UTF-8": b'{"instances": ["\xff\xfe"]}',
        "an empty list": body(instances=[]),
        "a number for text": body(inputs={"text": [3]}),
        "text for an integer": body(signature_name="sample", inputs={"text": [text], "seed": ["x"]}),
        "one dimension too many": body(inputs={"text": [[text]]}),
        "one dimension too few": body(inputs={"text": text}),
        "inputs of different numbers of rows": body(
            signature_name="sample", inputs={"text": [text, text], "seed": [1]}
        ),
        "an unknown input": body(inputs={"words": [text]}),
        "an unknown signature": body(signature_name="other", inputs={"text": [text]}),
        "a sentence of 100,000 bytes": body(inputs={"text": ["a" * 100_000]}),
        "`align` of 255 short sentences and one of 3,000 bytes": body(
            signature_name="align", inputs={"text": ["a"] * 255 + ["word " * 600]}
        ),
        "`tokens` of 30,000 ids": body(
            signature_name="tokens", inputs={"source_ids": [[5] * 30_000], "source_length": [30_000]}
        ),
        "10,000 sentences": body(inputs={"text": [text] * 10_000}),
        "a body of 10 MB": body(inputs={"text": ["a" * 10_000_000]}),
    }
    for name, content in requests.items():
        yield name, functools.partial(_answered, server, content)
    yield "an unknown model", lambda: _answered(server, body(instances=[text]), "/v1/models/other:predict")
    yield "invalid UTF-8 through gRPC", lambda: _answered_grpc(server, {"text": [b"\xff\xfe"]})
    yield "a number for text through gRPC", lambda: _answered_grpc(server, {"text": [1]})
    yield f"{_DISCONNECTS} clients that disconnect during the request", lambda: hung_up(server, cut=True)
    yield f"{_DISCONNECTS} clients that disconnect before the answer", lambda: hung_up(server, cut=False)
    yield "a version directory without a model", lambda: broken_version(server, export_dir, "2", [])
    yield "an incomplete copy of a version", lambda: broken_version(server, export_dir, "3", ["saved_model.pb"])
    yield (
        "a version with random bytes as its graph",
        lambda: broken_version(server, export_dir, "4", ["saved_model.pb"], noise=True),
    )
    yield f"a new version under load of {_CLIENTS} clients", lambda: new_version(server, known, export_dir)
    yield (
        f"{_MIXED_REQUESTS:,} mixed requests of {_CLIENTS} clients, REST and gRPC, four signatures",
        lambda: mixed(server, known, _MIXED_REQUESTS),
    )


def _answered(server: Served, body: bytes, path: str = "/v1/models/model:predict") -> str:
    status, answer = post(server.rest, body, path)
    message = json.dumps(answer) if status == 200 else answer["error"]
    # The message must fit into a row of the table.
    message = " ".join(message.split()).replace("|", "\\|")
    return f"{status}: {message if len(message) < 110 else message[:107] + '...'}"


def _answered_grpc(server: Served, inputs: dict[str, list]) -> str:
    with grpc.insecure_channel(server.grpc) as channel:
        try:
            return f"OK: {ask_grpc(channel, 'serving_default', inputs)}"
        except grpc.RpcError as error:
            return f"{error.code().name}: {error.details()[:100]}"


def hung_up(server: Served, cut: bool) -> str:
    """Opens connections that end before the end of the request or of the answer."""
    host, port = server.rest.split(":")
    body = json.dumps({"inputs": {"text": ["A man is walking his dog in the park."] * 8}}).encode()
    head = f"POST /v1/models/model:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    for _ in range(_DISCONNECTS):
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(head + (body[: len(body) // 2] if cut else body))
    return "none"


def broken_version(server: Served, export_dir: str, version: str, files: list[str], noise: bool = False) -> str:
    """Adds a version that cannot be loaded, and removes it once the server has tried."""
    path = os.path.join(export_dir, version)
    os.makedirs(path)
    for name in files:
        with open(os.path.join(export_dir, "1", name), "rb") as file:
            content = file.read()
        with open(os.path.join(path, name), "wb") as file:
            file.write(os.urandom(5000) if noise else content[: len(content) // 2])
    time.sleep(2)
    _, status = get(server.rest, "/v1/models/model")
    shutil.rmtree(path)
    states = {entry["version"]: entry["state"] for entry in status["model_version_status"]}
    return ", ".join(f"version {number}: {state}" for number, state in sorted(states.items()))


class Load(Clients):
    """Clients that send one request after another until they are stopped, and check every answer."""

    def __init__(self, server: Served, known: KnownAnswers) -> None:
        self._server, self._known = server, known
        self.outcomes: list[tuple[float, float, str]] = []  # start, end, outcome
        super().__init__(functools.partial(self._client, number) for number in range(_CLIENTS))

    def _client(self, number: int) -> None:
        rng = random.Random(number)
        while not self.over.is_set():
            at = rng.randrange(len(self._known.requests))
            started = time.monotonic()
            outcome = self._outcome(at)
            self.outcomes.append((started, time.monotonic(), outcome))

    def _outcome(self, at: int) -> str:
        try:
            answer = ask_rest(self._server.rest, *self._known.requests[at])
            return "right" if same(answer, self._known.answers[at]) else "wrong"
        except RestError as error:
            return "refused" if error.args[0] == 503 else f"status {error.args[0]}"
        except ConnectionRefusedError:
            return "refused"
        except (OSError, http.client.HTTPException):
            return "broken"


def new_version(server: Served, known: KnownAnswers, export_dir: str) -> str:
    """Adds the same model as a new version while clients send requests."""
    with Load(server, known) as load:
        temporary = os.path.join(export_dir, "copying")
        shutil.copytree(os.path.join(export_dir, "1"), temporary)
        os.rename(temporary, os.path.join(export_dir, "5"))
        started = time.monotonic()
        while time.monotonic() < started + _NEW_VERSION_SECONDS and get(server.rest, "/server.json")[1]["version"] != 5:
            time.sleep(0.2)
        duration = time.monotonic() - started
        served = get(server.rest, "/server.json")[1]["version"]
        time.sleep(1)
    counts = collections.Counter(outcome for _, _, outcome in load.outcomes)
    return f"version {served} after {duration:.1f} s; of {len(load.outcomes):,} requests {_counted(counts)}"


def mixed(server: Served, known: KnownAnswers, count: int) -> str:
    """Sends requests of all kinds concurrently; each must get the same answer as a single request."""
    rng = random.Random(1)
    order = [rng.randrange(len(known.requests)) for _ in range(count)]
    with contextlib.ExitStack() as stack:
        channel = stack.enter_context(grpc.insecure_channel(server.grpc))
        pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(_CLIENTS))

        def ask(number: int) -> bool:
            at = order[number]
            request = known.requests[at]
            answer: Outputs = ask_grpc(channel, *request) if number % 2 else ask_rest(server.rest, *request)
            return same(answer, known.answers[at])

        right = sum(pool.map(ask, range(count)))
    return f"{right:,} of {count:,} answers equal those to single requests"


def stopped_under_load(server: Served, known: KnownAnswers) -> str:
    """Stops the server under load; returns the outcomes of earlier requests and of those in flight."""
    with Load(server, known) as load:
        time.sleep(_STOP_AFTER)
        stopped_at = server.tell_to_stop()
        while server.alive:
            time.sleep(0.05)
        duration = time.monotonic() - stopped_at
    in_flight = collections.Counter(
        outcome for started, ended, outcome in load.outcomes if started < stopped_at - _TAKEN and ended > stopped_at
    )
    before = collections.Counter(outcome for _, ended, outcome in load.outcomes if ended <= stopped_at)
    return f"before: {_counted(before)}; in flight: {_counted(in_flight)}; ended after {duration:.1f} s"


def _counted(counts: collections.Counter) -> str:
    return ", ".join(f"{number:,} {outcome}" for outcome, number in counts.most_common()) or "none"

"""Loads a server with mixed requests for a long time, compares every answer, and records the server's memory.

    python -m benchmarks.soak --export_dir=saved_models/mine --text=test.en --minutes=60

Clients use all signatures over REST and gRPC. Some send documents with markup or request streams, some read slowly, and
some hang up. The server caches outputs (--cache_bytes) in less memory than all outputs need. Every two minutes, the
model is added as a new version and the version before the last is removed. Each answer must equal that of a different
server to the single request.
"""

import argparse
import collections
import dataclasses
import functools
import html
import http.client
import json
import os
import random
import shutil
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import grpc

from benchmarks.serving_process import Clients, Outputs, RestError, Served, ask_grpc, ask_rest, get, post, same
from benchmarks.turns import number

# The outputs of these signatures depend only on their row; those of the others are padded to the widest row.
_BY_ROW = ("serving_default", "nbest", "score", "sample", "alternatives")
_WHOLE = ("align", "attention", "tokens", "constrained")
_MAX_LINES = {"attention": 4}  # per request; the server refuses more of these lines
_LARGEST = 16  # number of texts of a whole request
_MAX_LETTERS = 60  # in a text that is translated with a prefix, which must be one part
_ASKERS = 5
_CACHE_BYTES = 200_000
_VERSION_SECONDS = 120
_SAMPLE_SECONDS = 5
_FIRST_MINUTES = 5
_MAX_GROWTH = 1.1
_UNANSWERED = ("hung up", "slow reader: gave up")  # outcomes of clients that do not wait for an answer

Request = tuple[str, dict[str, list]]


@dataclasses.dataclass
class Known:
    """Requests and their expected outputs: single rows by signature, whole requests, and documents with markup."""

    rows: dict[str, list[tuple[dict[str, list], Outputs]]]
    whole: list[tuple[Request, Outputs]]
    marked: list[tuple[dict[str, Any], Outputs]]

    @classmethod
    def ask(cls, server: Served, sentences: Sequence[str], signatures: set[str]) -> "Known":
        """Sends all requests to a server, one after another."""
        rows: dict[str, list[tuple[dict[str, list], Outputs]]] = {}
        for name in _BY_ROW:
            if name not in signatures:
                continue
            inputs = [_inputs(name, [sentence], at) for at, sentence in enumerate(sentences)]
            if name == "alternatives":
                inputs = _prefixed(inputs, [right["translation"][0] for _, right in rows["serving_default"]])
            if inputs:
                rows[name] = [(some, ask_rest(server.rest, name, some)) for some in inputs]
        requests = []
        for at in range(0, len(sentences) - _LARGEST, 3):
            name = _WHOLE[at // 3 % len(_WHOLE)]
            if name in signatures:
                count = min((1, 2, 4, _LARGEST)[at // 9 % 4], _MAX_LINES.get(name, _LARGEST))
                requests.append((name, _inputs(name, sentences[at : at + count], at)))
        whole = [(request, ask_rest(server.rest, *request)) for request in requests]
        documents = [_marked(sentences[at : at + 3], at) for at in range(0, len(sentences) - 2, 5)]
        marked = [(body, ask_marked(server.rest, body)) for body in documents if "align" in signatures]
        return cls(rows, whole, marked)


def _inputs(signature: str, texts: Sequence[str], at: int) -> dict[str, list]:
    """Returns the inputs of a signature for some texts; `at` varies optional inputs."""
    if signature in ("tokens", "constrained"):
        ids = [[10 + (at + place * row) % 250 for place in range(5 + at % 20)] for row in range(1, len(texts) + 1)]
        inputs: dict[str, list] = {"source_ids": ids, "source_length": [len(row) for row in ids]}
        if signature == "constrained":  # one constraint with two alternatives
            inputs["constraints"] = [[[[10 + at % 250], [20 + at % 250]]]] * len(texts)
        return inputs
    inputs = {"text": list(texts)}
    if signature == "sample":
        inputs["seed"] = [at] * len(texts)
    if signature in ("score", "attention"):
        inputs["target"] = [text.upper() for text in texts]
    if signature == "attention":
        inputs |= {"kind": [("encoder", "decoder", "cross")[at % 3]] * len(texts), "layer": [0] * len(texts)}
    return inputs


def _prefixed(inputs: Sequence[dict[str, list]], translations: Sequence[str]) -> list[dict[str, list]]:
    """Returns inputs of `alternatives`: short texts, with the beginnings of their translations."""
    prefixed = []
    for at, (some, translation) in enumerate(zip(inputs, translations, strict=True)):
        words = translation.split(" ")
        if len(some["text"][0]) <= _MAX_LETTERS:
            prefixed.append({**some, "prefix": [" ".join(words[: at % len(words)])]})
    return prefixed


def _marked(sentences: Sequence[str], at: int) -> dict[str, Any]:
    """Returns a request with documents, in each of which the second word of a sentence is in a tag."""
    kind = ("html", "xml", "placeholders")[at % 3]
    tag, end = ("{name}", "%s") if kind == "placeholders" else ("<b>", "</b>")
    texts = []
    for sentence in sentences:
        first, *words = html.escape(sentence, quote=False).split(" ")
        text = " ".join([first, *(f"{tag}{word}{end}" for word in words[:1]), *words[1:]])
        texts.append(text if kind == "placeholders" else f"<p>{text}</p>")
    return {"markup": kind, "inputs": {"text": texts}}


def ask_marked(address: str, body: dict[str, Any]) -> Outputs:
    """Returns the translated documents of a request; raises a `RestError` if the server refuses it."""
    status, answer = post(address, json.dumps(body).encode())
    if status != 200:
        raise RestError(status, answer.get("error", ""))
    return {"translation": answer["outputs"]}


class Load(Clients):
    """A context in which clients send requests, each in a thread.

    Args:
        server: the server.
        known: the requests with their expected outputs.

    Attributes:
        counts: number of requests by kind and outcome.
        wrong: descriptions of the first wrong answers.
    """

    def __init__(self, server: Served, known: Known) -> None:
        self._server, self._known = server, known
        self._lock = threading.Lock()
        self.counts: collections.Counter[str] = collections.Counter()
        self.wrong: list[str] = []
        kinds = [self._rest_or_grpc] * _ASKERS + [self._grown, self._read_slowly, self._hung_up]
        kinds += [self._with_markup] if known.marked else []
        super().__init__(functools.partial(self._client, number, kind) for number, kind in enumerate(kinds))

    def _client(self, number: int, kind: Callable[[random.Random, grpc.Channel], str]) -> None:
        draw = random.Random(number)
        with grpc.insecure_channel(self._server.grpc) as channel:
            while not self.over.is_set():
                try:
                    outcome = kind(draw, channel)
                except RestError as error:
                    outcome = f"{error.args[0]}"
                except grpc.RpcError as error:
                    outcome = error.code().name
                except Exception as error:  # a client must not end silently: a truncated answer is wrong
                    outcome = type(error).__name__
                with self._lock:
                    self.counts[outcome] += 1

    def _compared(self, request: object, answer: Outputs, right: Outputs, name: str) -> str:
        if same(answer, right):
            return f"{name}: right"
        with self._lock:
            if len(self.wrong) < 20:
                self.wrong.append(f"{name} {request!r}: {answer!r} in place of {right!r}")
        return f"{name}: wrong"

    def _rest_or_grpc(self, draw: random.Random, channel: grpc.Channel) -> str:
        by_rest = draw.random() < 0.5
        name = "REST" if by_rest else "gRPC"
        if self._known.whole and draw.random() < 0.2:
            request, right = draw.choice(self._known.whole)
        else:
            request, right = self._drawn_rows(draw)
        answer = ask_rest(self._server.rest, *request) if by_rest else ask_grpc(channel, *request)
        return self._compared(request, answer, right, name)

    def _drawn_rows(self, draw: random.Random) -> tuple[Request, Outputs]:
        """Returns a request of random rows, with the expected outputs; a few rows are drawn more often."""
        signature = draw.choice(list(self._known.rows))
        pool = self._known.rows[signature]
        pool = pool[: -(-len(pool) // 10)] if draw.random() < 0.5 else pool
        drawn = [draw.choice(pool) for _ in range(draw.choice((1, 1, 2, 4)))]
        inputs, outputs = ({name: [row[side][name][0] for row in drawn] for name in drawn[0][side]} for side in (0, 1))
        return (signature, inputs), outputs

    def _grown(self, draw: random.Random, channel: grpc.Channel) -> str:
        """Requests a stream, and compares its last event."""
        inputs, right = draw.choice(self._known.rows["serving_default"])
        last = {}
        for name, data in events(self._server.rest, inputs):
            if name == "error":
                return f"stream: {data['error'][:60]}"
            last = data
        return self._compared(inputs, last["outputs"], right, "stream")

    def _with_markup(self, draw: random.Random, channel: grpc.Channel) -> str:
        body, right = draw.choice(self._known.marked)
        return self._compared(body, ask_marked(self._server.rest, body), right, "markup")

    def _read_slowly(self, draw: random.Random, channel: grpc.Channel) -> str:
        """Reads large answers slowly; some clients give up."""
        large = [entry for entry in self._known.whole if entry[0][0] != "tokens"] or self._known.whole
        (signature, inputs), right = draw.choice(large)
        body = json.dumps({"signature_name": signature, "inputs": inputs}).encode()
        patience = draw.choice((2.0, 20.0, 20.0))
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(60)
            connection.connect(place(self._server.rest))
            connection.sendall(head(len(body)) + body)
            started, parts = time.monotonic(), []
            while part := connection.recv(4096):
                parts.append(part)
                time.sleep(0.05)
                if self.over.is_set() or time.monotonic() > started + patience:
                    return "slow reader: gave up"
        status, _, content = b"".join(parts).partition(b"\r\n\r\n")
        if b" 200 " not in status.split(b"\r\n")[0]:
            return status.split(b" ")[1].decode()
        if b"chunked" in status:
            content = unchunked(content)
        return self._compared((signature, inputs), json.loads(content)["outputs"], right, "slow reader")

    def _hung_up(self, draw: random.Random, channel: grpc.Channel) -> str:
        """Closes a connection before the end of the request, the answer or the stream."""
        signature = draw.choice(["serving_default", "nbest", "align"])
        texts = [draw.choice(self._known.rows["serving_default"])[0]["text"][0] for _ in range(8)]
        method = draw.choice(["predict", "stream"])
        content = (
            {"inputs": {"text": texts[:1]}}
            if method == "stream"
            else {"inputs": {"text": texts}, "signature_name": signature}
        )
        body = json.dumps(content).encode()
        with socket.create_connection(place(self._server.rest)) as connection:
            connection.sendall(head(len(body), method) + body[: draw.choice([len(body) // 2, len(body), len(body)])])
            time.sleep(draw.choice((0.0, 0.05, 0.3)))
        self.over.wait(0.3)
        return "hung up"


def place(address: str) -> tuple[str, int]:
    """Splits "host:port"."""
    host, _, port = address.rpartition(":")
    return host, int(port)


def head(size: int, method: str = "predict") -> bytes:
    """Returns the head of a request with a body of `size` bytes."""
    lines = [f"POST /v1/models/model:{method} HTTP/1.1", "Host: localhost", "Connection: close"]
    return "\r\n".join([*lines, f"Content-Length: {size}", "", ""]).encode()


def unchunked(content: bytes) -> bytes:
    """Joins the chunks of an answer."""
    parts = []
    while content:
        size, _, content = content.partition(b"\r\n")
        parts.append(content[: int(size, 16)])
        content = content[int(size, 16) + 2 :]
    return b"".join(parts)


def events(address: str, inputs: dict[str, list]) -> Iterator[tuple[str, dict]]:
    """Yields the names and contents of the events of a stream; raises a `RestError` if the server refuses it."""
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        connection.request("POST", "/v1/models/model:stream", json.dumps({"inputs": inputs}).encode())
        response = connection.getresponse()
        if response.status != 200:
            raise RestError(response.status, response.read().decode())
        name = ""
        for line in response:
            field, _, value = line.decode().rstrip("\n").partition(": ")
            if field == "data":
                yield name, json.loads(value)
            name = value if field == "event" else ""
    finally:
        connection.close()


class Versions:
    """Adds versions of the same model, and removes old ones."""

    def __init__(self, export_dir: str) -> None:
        self._export_dir, self.newest = export_dir, 1

    def next(self) -> None:
        """Adds a version, and removes the one before the last."""
        temporary = os.path.join(self._export_dir, "copying")
        shutil.copytree(os.path.join(self._export_dir, str(self.newest)), temporary, copy_function=os.link)
        os.rename(temporary, os.path.join(self._export_dir, str(self.newest + 1)))
        shutil.rmtree(os.path.join(self._export_dir, str(self.newest - 1)), ignore_errors=True)
        self.newest += 1


def watch(server: Served, load: Load, versions: Versions, seconds: float) -> list[tuple[float, int]]:
    """Returns times and the server's memory at these times, and adds versions in the meantime."""
    started, samples, num_reports = time.monotonic(), list[tuple[float, int]](), 0
    while (passed := time.monotonic() - started) < seconds and server.alive:
        if passed > _VERSION_SECONDS * versions.newest - _VERSION_SECONDS / 2:
            versions.next()
        samples.append((passed, server.memory_bytes))
        if passed >= 60 * num_reports:
            num_reports += 1
            print(f"{passed / 60:.0f} min: {samples[-1][1] >> 20} MiB, {dict(load.counts)}", flush=True)
        time.sleep(_SAMPLE_SECONDS)
    return samples


def level(samples: Sequence[tuple[float, int]], end: float) -> float:
    """Returns the median memory in bytes over the interval of a version that ends after `end` seconds."""
    return statistics.median(memory for passed, memory in samples if end - _VERSION_SECONDS < passed <= end)


def main() -> int:
    """Starts the servers, runs the load and prints the outcomes."""
    flags = parser().parse_args()
    with open(flags.text, encoding="utf-8") as file:
        sentences = [line.strip() for line in file if line.strip()][: flags.sentences]
    if len(sentences) <= _LARGEST:
        raise SystemExit(f"{flags.text}: {len(sentences)} sentences; more than {_LARGEST} are required")
    newest = max((name for name in os.listdir(flags.export_dir) if name.isdecimal()), key=int)
    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, "model")
        shutil.copytree(os.path.join(flags.export_dir, newest), os.path.join(copy, "1"))
        with Served(copy, os.path.join(folder, "alone.log"), "--max_batch_size=1") as server:
            metadata = get(server.rest, "/v1/models/model/metadata")[1]["metadata"]
            known = Known.ask(server, sentences, set(metadata["signature_def"]["signature_def"]))
        print(
            f"{sum(map(len, known.rows.values()))} rows and {len(known.whole)} requests have expected outputs",
            flush=True,
        )
        log_path = os.path.join(folder, "server.log")
        with Served(copy, log_path, f"--cache_bytes={_CACHE_BYTES}", *flags.server_flags) as server:
            versions = Versions(copy)
            with Load(server, known) as load:
                samples = watch(server, load, versions, 60 * flags.minutes)
            status = server.stop()
            log = server.log
    for line in load.wrong:
        print(line)
    for outcome, count in sorted(load.counts.items()):
        print(f"{count:,} {outcome}")
    print(f"{versions.newest} versions; exit status {status}; {len(log.splitlines())} lines of log")
    print(log[-3000:] if status or "Traceback" in log else "")
    if samples[-1][0] < 60 * _FIRST_MINUTES:
        print(f"the server ended after {samples[-1][0]:.0f} s")
        return 1
    first, last = (level(samples, end) for end in (60 * _FIRST_MINUTES, samples[-1][0]))
    print(
        f"{first / 2**20:.0f} MiB after {_FIRST_MINUTES} minutes, {last / 2**20:.0f} MiB at the end, {last / first:.3f}"
    )
    missing = [name for name in load.counts if not name.endswith(": right") and name not in _UNANSWERED]
    return int(bool(missing or status or "Traceback" in log or last > _MAX_GROWTH * first))


def _enough(text: str) -> float:
    if float(text) <= _FIRST_MINUTES:
        raise argparse.ArgumentTypeError(f"must be more than {_FIRST_MINUTES}, got {text}")
    return float(text)


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the flags."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--export_dir", required=True, help="directory of an exported model")
    flags.add_argument("--text", required=True, help="a file with one source sentence per line")
    flags.add_argument("--sentences", type=number(), default=300, help="number of sentences")
    flags.add_argument("--minutes", type=_enough, default=60, help="duration of the load")
    flags.add_argument("server_flags", nargs="*", help="additional flags of the server, after --")
    return flags


if __name__ == "__main__":
    sys.exit(main())

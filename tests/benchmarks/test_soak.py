"""The benchmark of an hour: what it counts as right, and what it takes for the level of memory."""

import argparse
import collections
import contextlib
import random
import socket
import sys
import threading
import time

import grpc
import pytest

from benchmarks import soak
from t2t_keras.serving.http.marked import MarkupField
from t2t_keras.serving.options import ServingOptions
from t2t_keras.serving.server import Server
from tests.serving import page_model

pytestmark = pytest.mark.integration


class InProcess:
    """What the load asks of a server, for one in this process."""

    def __init__(self, server):
        self.rest, self.grpc = server.rest_address, server.grpc_address


class Whole:
    """Documents of which all is translated."""

    def __init__(self, markup, documents, attributes):
        self.texts = documents

    def filled(self, outputs):
        return [some["translation"][0].decode() for some in outputs]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    export_dir = page_model.save(tmp_path_factory.mktemp("export"), grows=True)
    options = ServingOptions(str(export_dir), name="model", rest_port=0, grpc_port=0, grace_seconds=5)
    server = Server(options, fields=[MarkupField(Whole)])
    server.start()
    yield InProcess(server)
    server.stop()


def known(served, sentences):
    return soak.Known.ask(served, sentences, {"serving_default", "nbest", "align", "alternatives"})


def test_what_is_asked_for():
    """Prefixes are beginnings of what the model writes itself, and each document has its markup."""
    inputs = soak._prefixed([{"text": ["a b c"]}, {"text": ["a b c"]}, {"text": ["a" * 100]}], ["X Y Z"] * 3)
    assert inputs == [{"text": ["a b c"], "prefix": [""]}, {"text": ["a b c"], "prefix": ["X"]}]
    assert soak._marked(["a b & c", "d"], 0) == {
        "markup": "html",
        "inputs": {"text": ["<p>a <b>b</b> &amp; c</p>", "<p>d</p>"]},
    }
    assert soak._marked(["a b c"], 2) == {"markup": "placeholders", "inputs": {"text": ["a {name}b%s c"]}}


def test_each_kind_of_client_compares_what_it_is_answered(served):
    # The score of what grows is that of five letters.
    asked = known(served, ["a b c", "d e f", "g h i", "j k l"] * 6)
    assert set(asked.rows) == {"serving_default", "nbest", "alternatives"}
    assert [request[0] for request, _ in asked.whole] == ["align"] and len(asked.marked) == 5
    load = soak.Load(served, asked)
    outcomes, draw = collections.Counter(), random.Random(1)
    with grpc.insecure_channel(served.grpc) as channel:
        for client in (load._rest_or_grpc, load._rest_or_grpc, load._rest_or_grpc, load._grown, load._hung_up):
            for _ in range(4):
                outcomes[client(draw, channel)] += 1
        outcomes[load._with_markup(draw, channel)] += 1
        outcomes[load._read_slowly(draw, channel)] += 1
    right = {f"{kind}: right" for kind in ("REST", "gRPC", "stream", "markup", "slow reader")}
    assert set(outcomes) == {*right, "hung up"}
    assert load.wrong == []


def test_another_answer_is_counted_as_wrong(served):
    asked = known(served, ["a b c"] * 3)
    asked.rows["serving_default"] = [
        (inputs, {**right, "translation": ["X"]}) for inputs, right in asked.rows["serving_default"]
    ]
    load = soak.Load(served, asked)
    assert load._grown(random.Random(1), None) == "stream: wrong"
    asked.marked[:] = [(body, {"translation": ["X"]}) for body, _ in asked.marked]
    assert load._with_markup(random.Random(1), None) == "markup: wrong"
    assert len(load.wrong) == 2


def test_the_level_of_memory_is_that_between_two_versions():
    samples = [(float(second), second) for second in range(0, 1000, 10)]
    assert soak.level(samples, 300) == 245
    assert soak.level(samples, 990) == 935


def test_a_body_in_chunks():
    assert soak.unchunked(b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n") == b"abcde"


def test_a_new_version_takes_the_place_of_the_one_before_the_last(tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "file").write_text("model")
    versions = soak.Versions(str(tmp_path))
    versions.next()
    versions.next()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2", "3"]
    assert (tmp_path / "3" / "file").read_text() == "model"


def test_an_answer_that_is_cut_is_counted_and_its_client_goes_on():
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def cut():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    with connection:
                        connection.recv(1 << 16)
                        connection.sendall(b'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{"outputs": {"transl')

        threading.Thread(target=cut, daemon=True).start()
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        load = soak.Load(
            argparse.Namespace(rest=address, grpc=address),
            soak.Known({}, [(("nbest", {"text": ["a"]}), {"translation": ["A"]})], []),
        )
        client = threading.Thread(target=load._client, args=(0, load._read_slowly))
        client.start()
        while load.counts["JSONDecodeError"] < 2:
            assert client.is_alive()
            time.sleep(0.01)
        load.over.set()
        client.join()
        listening.shutdown(socket.SHUT_RDWR)


class Ended:
    """A server that has ended when it is looked at."""

    rest = grpc = log = ""

    def __init__(self, *arguments):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def stop(self):
        return -9


@pytest.mark.parametrize(
    ("counts", "seconds", "expected"),
    [
        ({"REST: right": 5, "hung up": 2}, 600.0, -9),
        ({"REST: right": 5, "500": 1}, 600.0, 0),
        ({"REST: right": 5, "hung up": 2, "slow reader: gave up": 1}, 600.0, 0),
        ({"REST: right": 5}, 100.0, -9),
    ],
)
def test_what_an_hour_comes_to(counts, seconds, expected, tmp_path, monkeypatch, capsys):
    """Only right answers, and a server that ends well, are a success; a server that dies early is told."""
    (tmp_path / "export" / "1").mkdir(parents=True)
    (tmp_path / "text").write_text("a b c\n" * 17)

    def loaded(server, load, versions, seconds_asked):
        load.counts.update(counts)
        return [(second, 100) for second in range(0, int(seconds) + 1, 5)]

    monkeypatch.setattr(Ended, "stop", lambda self: expected)
    monkeypatch.setattr(soak, "Served", Ended)
    monkeypatch.setattr(soak, "get", lambda *arguments: (200, {"metadata": {"signature_def": {"signature_def": {}}}}))
    monkeypatch.setattr(soak.Known, "ask", lambda *arguments: soak.Known({}, [], []))
    monkeypatch.setattr(soak.Load, "__enter__", lambda self: self)
    monkeypatch.setattr(soak.Load, "__exit__", lambda self, *error: None)
    monkeypatch.setattr(soak, "watch", loaded)
    monkeypatch.setattr(sys, "argv", ["soak", f"--export_dir={tmp_path / 'export'}", f"--text={tmp_path / 'text'}"])
    good = expected == 0 and "500" not in counts
    assert soak.main() == (0 if good else 1)
    output = capsys.readouterr().out
    assert f"exit status {expected};" in output
    assert ("the server ended after 100 s" in output) == (seconds < 300)

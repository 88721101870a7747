"""The benchmark of the server: what it counts as right, and its load generator, on a small server."""

import shutil

import pytest

from benchmarks import serving, serving_faults, serving_process
from t2t_keras.serving.options import ServingOptions
from t2t_keras.serving.server import Server
from tests.serving import page_model

pytestmark = pytest.mark.integration


class InProcess:
    """What the load generator asks of a server, for one in this process."""

    def __init__(self, server: Server) -> None:
        self.rest, self.grpc, self.cpu_seconds = server.rest_address, server.grpc_address, 0.0


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    export_dir = page_model.save(tmp_path_factory.mktemp("export"))
    server = Server(ServingOptions(str(export_dir), name="model", rest_port=0, grpc_port=0, grace_seconds=5))
    server.start()
    yield InProcess(server)
    server.stop()


def test_answers_are_the_same_up_to_rounding():
    answer = {"translation": ["a", "b"], "score": [-1.0, -2.0]}
    assert serving_process.same(answer, {"score": [-1.00001, -2.0], "translation": ["a", "b"]})
    assert not serving_process.same(answer, {"translation": ["b", "a"], "score": [-1.0, -2.0]})
    assert not serving_process.same(answer, {"translation": ["a", "b"], "score": [-1.0, -2.1]})
    assert not serving_process.same(answer, {"translation": ["a", "b"]})
    assert not serving_process.same(answer, {"translation": ["a"], "score": [-1.0]})


def test_rest_and_grpc_are_asked_alike(served):
    with serving_process.grpc.insecure_channel(served.grpc) as channel:
        for signature in ("serving_default", "align"):
            inputs = {"text": ["one two", "three"]}
            by_rest = serving_process.ask_rest(served.rest, signature, inputs)
            assert serving_process.same(by_rest, serving_process.ask_grpc(channel, signature, inputs))
    assert by_rest["translation"] == ["ONE TWO", "THREE"]
    with pytest.raises(serving_process.RestError, match="no such word"):
        serving_process.ask_rest(served.rest, "serving_default", {"text": ["bad"]})


@pytest.mark.skipif(not shutil.which("wrk"), reason="needs wrk")
def test_the_load_generator_counts_right_and_wrong_answers(served, tmp_path):
    path = tmp_path / "requests.txt"
    sentences = [f"number {number} 'and' \"quotes\"" for number in range(20)]
    serving.write_requests(served, sentences, str(path))
    turn = serving.take_turn(served, 4, 1, str(path))
    assert turn.right > 20 and (turn.wrong, turn.broken) == (0, 0)
    assert 0 < turn.p50 <= turn.p95 <= turn.p99 < 1000
    path.write_text(path.read_text().replace("NUMBER 7 ", "NUMBER 8 "))
    turn = serving.take_turn(served, 4, 1, str(path))
    assert turn.wrong > 0 and turn.right > turn.wrong


def test_the_table_has_medians_ranges_and_the_ratios_of_each_round(capsys):
    def turns(*rights: int) -> list[serving.Turn]:
        return [serving.Turn(2.0, right, 0, 0, right / 100, 6.0, 7.0, 0.01) for right in rights]

    peer = [{"per_second": 100.0, "p50": 2.0}, {"per_second": 200.0, "p50": 4.0}, {"per_second": 300.0, "p50": 4.0}]
    loads = {
        1: serving.Load({"tensorflow": turns(200, 600, 400)}, peer),
        64: serving.Load({"ctranslate2": turns(100, 200, 999)}, peer),
    }
    serving.print_load(loads)
    lines = capsys.readouterr().out.splitlines()
    first = "200 (100 to 300) | 1.00 (0.67 to 1.50) | 4.0 (2.0 to 6.0) | 1.00 (1.00 to 1.50) | 7 | 0 | 0 |"
    assert lines[2] == f"| 1 | tensorflow | {first}"
    assert lines[3] == "| 1 | CTranslate2 by itself | 200 (100 to 300) | | 4.0 (2.0 to 4.0) | | | | |"
    assert lines[4].startswith(
        "| 64 | ctranslate2 | 100 (50 to 500) | 0.50 (0.50 to 1.67) | 2.0 (1.0 to 10.0) |  | 7 |"
    )


def test_mixed_requests_are_compared_with_what_was_answered_alone(served):
    alone = serving_faults.Alone.__new__(serving_faults.Alone)
    alone.requests = [("serving_default", {"text": ["one"]}), ("align", {"text": ["two words"]})]
    alone.answers = [serving_process.ask_rest(served.rest, *request) for request in alone.requests]
    assert serving_faults.mixed(served, alone, 40) == "40 of 40 as when sent alone"
    alone.answers.reverse()
    assert serving_faults.mixed(served, alone, 40) == "0 of 40 as when sent alone"


class Gone:
    """A server that a fault ends."""

    alive = True
    rest = grpc = "127.0.0.1:9"

    def __init__(self, *arguments):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def die(self):
        self.alive = False
        return "503"


def test_a_fault_that_ends_the_server_is_told(tmp_path, monkeypatch, capsys):
    (tmp_path / "export" / "1").mkdir(parents=True)

    class Unanswered:
        def __init__(self, *arguments):
            pass

        def still_answers(self):
            raise ConnectionRefusedError

    monkeypatch.setattr(serving_faults, "Served", Gone)
    monkeypatch.setattr(serving_faults, "Alone", Unanswered)
    monkeypatch.setattr(serving_faults, "faults", lambda server, *arguments: [("a fault", server.die), ("next", None)])
    serving_faults.print_faults(str(tmp_path / "export"), ["x"], str(tmp_path))
    assert capsys.readouterr().out.splitlines()[-1] == "| a fault | 503 | **is gone** |"


def test_a_server_of_which_a_sentence_is_refused_is_stopped(tmp_path, monkeypatch):
    stopped = []

    class Refusing(Gone):
        def stop(self):
            stopped.append(self)

    monkeypatch.setattr(serving, "Served", Refusing)
    monkeypatch.setattr(serving, "post", lambda *arguments: (400, {"error": "too long"}))
    with pytest.raises(RuntimeError, match="'a' is refused"):
        serving.Contestant("name", "export", ["a"], str(tmp_path))
    assert len(stopped) == 1


def test_a_server_that_does_not_start_says_why(tmp_path):
    with pytest.raises(RuntimeError, match="^the server does not start: error: .*/nothing"):
        serving_process.Served(str(tmp_path / "nothing"), str(tmp_path / "log"))

"""The benchmark of the server: its checks of answers, and its load generator, on a small server."""

import shutil

import pytest

from benchmarks import serving, serving_faults, serving_process
from t2t_keras.serving.options import ServingOptions
from t2t_keras.serving.server import Server
from tests.serving import page_model

pytestmark = pytest.mark.integration


class InProcess:
    """The attributes of a server process, for a server in this process."""

    def __init__(self, server: Server) -> None:
        self.rest, self.grpc, self.cpu_seconds = server.rest_address, server.grpc_address, 0.0


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    export_dir = page_model.save(tmp_path_factory.mktemp("export"))
    server = Server(ServingOptions(str(export_dir), name="model", rest_port=0, grpc_port=0, grace_seconds=5))
    server.start()
    yield InProcess(server)
    server.stop()


def test_rest_and_grpc_give_the_same_answers(served):
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


def test_mixed_requests_are_compared_with_separate_ones(served):
    known = serving_faults.KnownAnswers.__new__(serving_faults.KnownAnswers)
    known.requests = [("serving_default", {"text": ["one"]}), ("align", {"text": ["two words"]})]
    known.answers = [serving_process.ask_rest(served.rest, *request) for request in known.requests]
    assert serving_faults.mixed(served, known, 40) == "40 of 40 answers equal those to single requests"
    known.answers.reverse()
    assert serving_faults.mixed(served, known, 40) == "0 of 40 answers equal those to single requests"

"""The endurance benchmark: its checks of answers."""

import collections
import random

import grpc
import pytest

from benchmarks import soak
from t2t_keras.serving.http.marked import MarkupField
from t2t_keras.serving.options import ServingOptions
from t2t_keras.serving.server import Server
from tests.serving import page_model

pytestmark = pytest.mark.integration


class InProcess:
    """The attributes of a server process, for a server in this process."""

    def __init__(self, server):
        self.rest, self.grpc = server.rest_address, server.grpc_address


class FullyTranslated:
    """Documents that are translated completely."""

    def __init__(self, markup, documents, attributes):
        self.texts = documents

    def filled(self, outputs):
        return [output["translation"][0].decode() for output in outputs]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    export_dir = page_model.save(tmp_path_factory.mktemp("export"), streams=True)
    options = ServingOptions(str(export_dir), name="model", rest_port=0, grpc_port=0, grace_seconds=5)
    server = Server(options, fields=[MarkupField(FullyTranslated)])
    server.start()
    yield InProcess(server)
    server.stop()


def record_answers(served, sentences):
    return soak.Known.ask(served, sentences, {"serving_default", "nbest", "align", "alternatives"})


def test_each_kind_of_client_checks_its_answers(served):
    # The growing outputs have the score of five letters.
    known = record_answers(served, ["a b c", "d e f", "g h i", "j k l"] * 6)
    assert set(known.rows) == {"serving_default", "nbest", "alternatives"}
    assert [request[0] for request, _ in known.whole] == ["align"] and len(known.marked) == 5
    load = soak.Load(served, known)
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


def test_a_different_answer_is_counted_as_wrong(served):
    known = record_answers(served, ["a b c"] * 3)
    known.rows["serving_default"] = [
        (inputs, {**right, "translation": ["X"]}) for inputs, right in known.rows["serving_default"]
    ]
    load = soak.Load(served, known)
    assert load._grown(random.Random(1), None) == "stream: wrong"
    known.marked[:] = [(body, {"translation": ["X"]}) for body, _ in known.marked]
    assert load._with_markup(random.Random(1), None) == "markup: wrong"
    assert len(load.wrong) == 2

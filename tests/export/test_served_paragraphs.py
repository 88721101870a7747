"""A server gives exactly the translator's translations of paragraphs."""

import grpc
import httpx
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from t2t_keras.inference.served_markup import ServedDocuments
from t2t_keras.serving.http.marked import MarkupField
from t2t_keras.serving.options import ServingOptions
from t2t_keras.serving.server import Server
from tests.serving.rest_calls import predict, read_events

pytestmark = pytest.mark.integration

PARAGRAPH = "Two dogs play.  A man is standing!\r\n\n\t„Zwei Hunde.“ Dr. Schnee spielt\nEin Mann. " + "Hunde " * 30
MODEL = "/v1/models/tiny"


@pytest.fixture(scope="module")
def server(version):
    options = ServingOptions(str(version.parent), rest_port=0, grpc_port=0)
    server = Server(options, fields=[MarkupField(ServedDocuments)])
    server.start()
    yield server
    assert server.stop()


def test_rest_grpc_and_streams_keep_white_space(server, translator):
    lines = [PARAGRAPH, "Two dogs play.", " \n "]
    expected = [translation.text for translation in translator.translate(lines)]
    assert expected[0].count("\n") == 3 and translator.translate(lines)[0].num_parts > 6
    with httpx.Client(base_url=f"http://{server.rest_address}", timeout=300) as client:
        predictions = predict(client, {"instances": lines}, MODEL).json()["predictions"]
        assert [translation["translation"] for translation in predictions] == expected
        *before, (name, last) = read_events(client, {"instances": [PARAGRAPH]}, MODEL)
        assert name == "end" and last["predictions"][0]["translation"] == expected[0]
        streamed = [data["predictions"][0]["translation"] for _, data in before]
        # The stream shows a part when the parts before it are final, and white space together with the next sentence.
        counts = [text.count("\n") for text in streamed]
        assert counts == sorted(counts) and counts[0] == 0 and not any(text.endswith("\n") for text in streamed)
    with grpc.insecure_channel(server.grpc_address) as channel:
        request = predict_pb2.PredictRequest()
        request.model_spec.name = "tiny"
        request.inputs["text"].CopyFrom(tf.make_tensor_proto([line.encode() for line in lines]))
        answer = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(request, timeout=300)
    texts = tf.make_ndarray(answer.outputs["translation"])
    assert [text.decode() for text in texts] == expected


def test_a_document_is_translated_by_sentence(server, translator):
    document = "<p>Two dogs play. A man is standing!</p>\n<p>Zwei <b>Hunde.</b></p>"
    first, second = translator.translate(["Two dogs play. A man is standing!", "Zwei Hunde."])
    assert len(first.sentences) == 2
    with httpx.Client(base_url=f"http://{server.rest_address}", timeout=300) as client:
        body = {"markup": "html", "inputs": [document]}
        (actual,) = client.post(f"{MODEL}:predict", json=body).json()["outputs"]
    assert actual.startswith(f"<p>{first.text}</p>\n<p>") and actual.endswith("</p>")
    assert actual.replace("<b>", "").replace("</b>", "").endswith(f"<p>{second.text}</p>")

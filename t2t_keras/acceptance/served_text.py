"""Compares the translations of a running server with those of a `Translator`."""

from collections.abc import Sequence

from t2t_keras.acceptance.report import Result, judged
from t2t_keras.errors import optional_module
from t2t_keras.inference.translator import Translator

_BATCH_SIZE = 16  # sentences per request
_SECONDS = 120.0  # time limit of a request


def compare_with_server(address: str, model: str, translator: Translator, lines: Sequence[str]) -> Result:
    """Translates lines through the gRPC interface of TensorFlow Serving, and compares the results.

    Args:
        address: HOST:PORT of the server.
        model: name of the served model.
        translator: the translator whose translations are expected.
        lines: the lines.

    Returns:
        The result, which names the first line whose translations differ, or the error of the server.

    Raises:
        InputError: the messages of TensorFlow Serving are not installed.
    """
    missing = "--serving needs the messages of TensorFlow Serving: pip install '.[serve]'"
    optional_module("tensorflow_serving.apis", missing)
    import grpc

    try:
        with grpc.insecure_channel(address) as channel:
            served = [
                text
                for first in range(0, len(lines), _BATCH_SIZE)
                for text in _request(channel, model, lines[first : first + _BATCH_SIZE])
            ]
    except grpc.RpcError as error:
        return Result("serving", "failed", f"{model} at {address}: {error.code().name}: {error.details()}")
    expected = [translation.text for translation in translator.translate(lines)]
    different = [number for number, pair in enumerate(zip(served, expected, strict=True)) if pair[0] != pair[1]]
    text = f"{model} at {address}: {len(lines) - len(different)} of {len(lines)} translations are equal"
    if different:
        first = different[0]
        text += f"; line {first + 1}: the server returns {served[first]!r} instead of {expected[first]!r}"
    return judged("serving", not different, text)


def _request(channel: object, model: str, lines: Sequence[str]) -> list[str]:
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    request.inputs["text"].CopyFrom(tf.make_tensor_proto([line.encode() for line in lines], tf.string))
    service = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    outputs = service.Predict(request, timeout=_SECONDS).outputs
    return [text.decode() for text in tf.make_ndarray(outputs["translation"]).tolist()]

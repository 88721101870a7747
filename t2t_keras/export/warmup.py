"""The warm-up requests that a server runs for each signature before it answers other requests."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_keras.errors import optional_module
from t2t_keras.symbols import EOS_ID

_LINES = ["A man is walking through the snow with two dogs.", "."]


def warmup_records(model_name: str, has_attention: bool, context: str = "") -> list[bytes]:
    """Returns records for `assets.extra/tf_serving_warmup_requests`, which are serialized `PredictionLog`s.

    Args:
        model_name: the name under which the model is served.
        has_attention: whether to include the signatures `align` and `attention`.
        context: the symbol that the task's sources must contain, or "".

    Raises:
        InputError: the package with TensorFlow Serving's messages is not installed.

    Reference: https://www.tensorflow.org/tfx/serving/saved_model_warmup
    """
    missing = "exporting needs the messages of TensorFlow Serving: pip install '.[serve]'"
    optional_module("tensorflow_serving.apis", missing)
    exclusions = () if has_attention else ("align", "attention")
    return [
        _record(model_name, signature, {name: tf.make_tensor_proto(*value) for name, value in inputs.items()})
        for signature, inputs in _requests(context)
        if signature not in exclusions
    ]


def records_of_text(model_name: str, functions: Mapping[str, Callable[..., dict[str, tf.Tensor]]]) -> list[bytes]:
    """Returns records, like `warmup_records`, of the other signatures that only some exports have.

    `functions` are the functions of all signatures of the export.
    """
    text = tf.make_tensor_proto(_LINES[-1:], tf.string)  # too short for any model to split into parts
    ids, lengths, constraints = ([[3, EOS_ID]], [2], [[[[3]]]])
    numbers = {"source_ids": ids, "source_length": lengths, "constraints": constraints}
    requests = {
        "alternatives": {"text": text, "prefix": text},
        "constrained": {name: tf.make_tensor_proto(value, tf.int32) for name, value in numbers.items()},
    }
    records = [_record(model_name, name, inputs) for name, inputs in requests.items() if name in functions]
    return [*records, *_stream_records(model_name, functions)]


def _stream_records(model_name: str, functions: Mapping[str, Callable[..., dict[str, tf.Tensor]]]) -> list[bytes]:
    if "stream_begin" not in functions:
        return []
    state = {name: tensor.numpy() for name, tensor in functions["stream_begin"](tf.constant(_LINES[:1])).items()}
    inputs = [{"text": np.array(_LINES[:1], object)}, {"steps": np.int32(1), **state}]
    return [
        _record(model_name, signature, {name: tf.make_tensor_proto(value) for name, value in values.items()})
        for signature, values in zip(("stream_begin", "stream_advance"), inputs, strict=True)
    ]


def _record(model_name: str, signature: str, inputs: Mapping[str, Any]) -> bytes:
    from tensorflow_serving.apis import prediction_log_pb2

    log = prediction_log_pb2.PredictionLog()
    request = log.predict_log.request
    request.model_spec.name = model_name
    request.model_spec.signature_name = signature
    for name, tensor in inputs.items():
        request.inputs[name].CopyFrom(tensor)
    return log.SerializeToString(deterministic=True)


def _requests(context: str) -> list[tuple[str, dict[str, tuple[Any, tf.DType]]]]:
    """Returns pairs of a signature and its inputs as (value, dtype): first for one line, then for a batch of two."""
    requests: list[tuple[str, dict[str, tuple[Any, tf.DType]]]] = []
    for lines in (_LINES[:1], _LINES):
        text = ([f"{context} {line}".strip() for line in lines], tf.string)
        kinds = (["cross"] * len(lines), tf.string)
        ids = [[3, 4, 5, EOS_ID]] * len(lines)
        requests += [
            ("serving_default", {"text": text}),
            ("nbest", {"text": text}),
            ("sample", {"text": text, "seed": (list(range(len(lines))), tf.int64)}),
            ("score", {"text": text, "target": text}),
            ("tokens", {"source_ids": (ids, tf.int32), "source_length": ([4] * len(lines), tf.int32)}),
            ("align", {"text": text}),
            ("attention", {"text": text, "target": text, "kind": kinds, "layer": ([0] * len(lines), tf.int32)}),
        ]
    return requests

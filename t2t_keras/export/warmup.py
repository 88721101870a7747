"""The warm-up requests that a server runs for each signature before it answers other requests."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from t2t_keras.errors import optional_module
from t2t_keras.export_contract import (
    ALTERNATIVES,
    CONSTRAINED,
    SIGNATURES,
    STREAM_ADVANCE,
    STREAM_BEGIN,
)
from t2t_keras.symbols import EOS_ID

# The second line is too short for any model to split it into parts.
_LINES = ("A man is walking through the snow with two dogs.", ".")
# These signatures are warmed up with a single line.
_SINGLE_LINE = frozenset({ALTERNATIVES, CONSTRAINED, STREAM_BEGIN, STREAM_ADVANCE})


def check_serving_messages() -> None:
    """Raises an `InputError` if the package with the messages of TensorFlow Serving is not installed."""
    missing = "exporting needs the messages of TensorFlow Serving: pip install '.[serve]'"
    optional_module("tensorflow_serving.apis", missing)


def warmup_records(
    model_name: str, functions: Mapping[str, Callable[..., dict[str, tf.Tensor]]], context: str = ""
) -> list[bytes]:
    """Returns the records of the file of warm-up requests, which are serialized `PredictionLog`s.

    Args:
        model_name: the name under which the model is served.
        functions: the functions of all signatures of the export by name.
        context: the symbol that the task's sources must contain, or "".

    Reference: https://www.tensorflow.org/tfx/serving/saved_model_warmup
    """
    lines = [f"{context} {line}".strip() for line in _LINES]
    records = []
    for signature in functions:
        for batch in (lines[1:],) if signature in _SINGLE_LINE else (lines[:1], lines):
            inputs = _inputs(signature, batch)
            if SIGNATURES[signature].takes_state:
                inputs |= functions[STREAM_BEGIN](tf.constant(batch))
            records.append(_record(model_name, signature, inputs))
    return records


def _inputs(signature: str, lines: Sequence[str]) -> dict[str, tf.Tensor]:
    """Returns the inputs of a signature for some lines, by name."""
    values: dict[str, Any] = {
        **dict.fromkeys(("text", "target", "prefix"), lines),
        "seed": list(range(len(lines))),
        "source_ids": [[3, 4, 5, EOS_ID]] * len(lines),
        "source_length": [4] * len(lines),
        "constraints": [[[[3]]]] * len(lines),
        "kind": ["cross"] * len(lines),
        "layer": [0] * len(lines),
        "steps": 1,
    }
    inputs = SIGNATURES[signature].inputs.items()
    return {name: tf.constant(values[name], tensor.dtype) for name, tensor in inputs}


def _record(model_name: str, signature: str, inputs: Mapping[str, tf.Tensor]) -> bytes:
    from tensorflow_serving.apis import prediction_log_pb2

    log = prediction_log_pb2.PredictionLog()
    request = log.predict_log.request
    request.model_spec.name = model_name
    request.model_spec.signature_name = signature
    for name, tensor in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(tensor.numpy(), tensor.dtype))
    return log.SerializeToString(deterministic=True)

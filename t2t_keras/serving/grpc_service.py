"""The gRPC interface of TensorFlow Serving.

Reference: https://github.com/tensorflow/serving/tree/master/tensorflow_serving/apis
"""

import math
from collections.abc import Sequence
from concurrent.futures import Future

import grpc
import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2, tensor_shape_pb2, types_pb2
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from t2t_keras.serving import off_loop
from t2t_keras.serving.core import Core
from t2t_keras.serving.metrics import Call
from t2t_keras.serving.request_errors import Code, ServingError, invalid
from t2t_keras.serving.served_models import Model
from t2t_keras.serving.served_signatures import Arrays, Signature

# The fields in which TensorFlow Serving answers, and which its clients read directly.
_FIELDS = {
    "float32": "float_val",
    "float64": "double_val",
    "int64": "int64_val",
    "int32": "int_val",
    "int16": "int_val",
    "int8": "int_val",
    "uint16": "int_val",
    "uint8": "int_val",
    "bool": "bool_val",
    "object": "string_val",
}

_TOGETHER = 1 << 14  # values that are written in one piece


def add_services(server: grpc.aio.Server, core: Core) -> None:
    """Adds TensorFlow Serving's services, answered by `core`, to a server that has not started."""
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(_PredictionService(core), server)
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(_ModelService(core), server)


class _PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Predict and GetModelMetadata; the inherited methods answer UNIMPLEMENTED."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def Predict(
        self, request: predict_pb2.PredictRequest, context: grpc.aio.ServicerContext
    ) -> predict_pb2.PredictResponse:
        try:
            with self._core.metrics.request("grpc", "predict") as call:
                future, spec = await off_loop.run(request.ByteSize(), self._begin, call, request)
                # A disconnect or the client's deadline cancels this wait and drops the parts that have not begun.
                outputs = await self._core.outputs(future)
                size = 4 * sum(array.size for array in outputs.values())
                return await off_loop.run(size, _response, spec, outputs, request.output_filter)
        except ServingError as error:
            await _abort(context, error)

    async def GetModelMetadata(
        self, request: get_model_metadata_pb2.GetModelMetadataRequest, context: grpc.aio.ServicerContext
    ) -> get_model_metadata_pb2.GetModelMetadataResponse:
        try:
            name, version = _target(request)
            if not request.metadata_field:
                raise invalid("GetModelMetadataRequest must specify at least one metadata_field")
            if unknown := set(request.metadata_field) - {"signature_def"}:
                raise invalid(f"Metadata field {', '.join(sorted(unknown))} is not supported")
            with self._core.lend(name, version) as model:
                response = get_model_metadata_pb2.GetModelMetadataResponse()
                response.model_spec.name = name
                response.model_spec.version.value = model.version
                response.metadata["signature_def"].Pack(model.signature_defs)
                return response
        except ServingError as error:
            await _abort(context, error)

    def _begin(self, call: Call, request: predict_pb2.PredictRequest) -> tuple[Future, model_pb2.ModelSpec]:
        """Reads a request and queues its call; returns the future of the outputs and the answer's `ModelSpec`."""
        name, version = _target(request)
        with self._core.lend(name, version) as model:
            signature = _signature(model, request.model_spec.signature_name)
            call.signature = signature.name
            signature.check_names(request.inputs)
            inputs = {name: self._array(name, signature, proto) for name, proto in request.inputs.items()}
            signature.check_outputs(request.output_filter)
            future = self._core.submit(model, signature, inputs)
            spec = model_pb2.ModelSpec(name=request.model_spec.name, signature_name=signature.name)
            spec.version.value = model.version
            return future, spec

    def _array(self, name: str, signature: Signature, proto: tensor_pb2.TensorProto) -> np.ndarray:
        sizes = [dimension.size for dimension in proto.tensor_shape.dim]
        # A few bytes can stand for one value repeated over a huge shape, so the shape is checked before unpacking.
        if min(sizes, default=0) < 0 or math.prod(sizes) > self._core.options.limits.max_body_bytes:
            raise invalid(f"input {name!r} has the shape {sizes}")
        wanted = signature.inputs[name].dtype
        if proto.dtype != wanted.as_datatype_enum:
            got = types_pb2.DataType.Name(proto.dtype) if proto.dtype in types_pb2.DataType.values() else proto.dtype
            raise invalid(f"input {name!r} must be of type {wanted.name}, got {got}")
        try:
            return np.asarray(tf.make_ndarray(proto), object if wanted == tf.string else None)
        except Exception as error:
            raise invalid(f"input {name!r} is not a valid tensor: {error}") from error


class _ModelService(model_service_pb2_grpc.ModelServiceServicer):
    """GetModelStatus; the inherited method that reloads the configuration answers UNIMPLEMENTED."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def GetModelStatus(
        self, request: get_model_status_pb2.GetModelStatusRequest, context: grpc.aio.ServicerContext
    ) -> get_model_status_pb2.GetModelStatusResponse:
        try:
            return self._core.status(*_target(request))
        except ServingError as error:
            await _abort(context, error)


def _target(request: object) -> tuple[str, int | None]:
    """The name and the version of the model that a request is for."""
    if not request.HasField("model_spec"):
        raise invalid("Missing ModelSpec")
    spec = request.model_spec
    if not spec.name:
        raise invalid("ModelSpec has no name specified.")
    if spec.version_label:
        raise invalid(f"Unrecognized servable version label: {spec.version_label}")
    return spec.name, spec.version.value if spec.HasField("version") else None


def _signature(model: Model, name: str) -> Signature:
    """Returns a signature by name; for an unknown one TensorFlow Serving's gRPC and REST error codes differ."""
    try:
        return model.signature(name)
    except ServingError as error:
        raise ServingError(Code.FAILED_PRECONDITION, error.message) from error


def _response(spec: model_pb2.ModelSpec, outputs: Arrays, wanted: Sequence[str]) -> predict_pb2.PredictResponse:
    protos = {name: _tensor_proto(outputs[name]) for name in wanted or outputs}
    return predict_pb2.PredictResponse(model_spec=spec, outputs=protos)


def _tensor_proto(array: np.ndarray) -> tensor_pb2.TensorProto:
    field = _FIELDS.get(array.dtype.name)
    if not field:
        return tf.make_tensor_proto(array)
    proto = tensor_pb2.TensorProto(dtype=tf.as_dtype(array.dtype).as_datatype_enum)
    proto.tensor_shape.dim.extend(tensor_shape_pb2.TensorShapeProto.Dim(size=size) for size in array.shape)
    values, flat = getattr(proto, field), array.reshape(-1)
    # In pieces, so that other threads run in between.
    for start in range(0, flat.size, _TOGETHER):
        values.extend(flat[start : start + _TOGETHER].tolist())
    return proto


async def _abort(context: grpc.aio.ServicerContext, error: ServingError) -> None:
    await context.abort(getattr(grpc.StatusCode, error.code.name), error.message)

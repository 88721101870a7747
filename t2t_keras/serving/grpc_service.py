"""The gRPC interface of TensorFlow Serving.

Reference: https://github.com/tensorflow/serving/tree/master/tensorflow_serving/apis
"""

import asyncio
import dataclasses
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeAlias

import grpc
import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.framework import tensor_pb2, tensor_shape_pb2, types_pb2
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_management_pb2,
    model_pb2,
    predict_pb2,
)
from tensorflow_serving.config import model_server_config_pb2

from t2t_keras.errors import InputError
from t2t_keras.serving import off_loop
from t2t_keras.serving.answers import LARGE_BYTES, memory_of, seconds_to_send
from t2t_keras.serving.core import Core
from t2t_keras.serving.http.fields import Calls, QueuedCall, RequestField
from t2t_keras.serving.metrics import Call
from t2t_keras.serving.model_configs import model_settings
from t2t_keras.serving.refusals import Reason
from t2t_keras.serving.request_errors import Busy, Code, ServingError, invalid
from t2t_keras.serving.served_models import Model
from t2t_keras.serving.served_signatures import MAX_DIMENSIONS, Arrays, Signature, check_num_rows

_LOG = logging.getLogger(__name__)

# TensorFlow Serving responds in these fields of `TensorProto`, and its clients read them directly.
_FIELDS = {
    "float32": "float_val",
    "float64": "double_val",
    "int64": "int64_val",
    "int32": "int_val",
    "int16": "int_val",
    "int8": "int_val",
    "uint16": "int_val",
    "uint8": "int_val",
    "uint32": "uint32_val",
    "uint64": "uint64_val",
    "bool": "bool_val",
    "object": "string_val",
}

_VALUES_AT_ONCE = 1 << 14  # values that are copied at once

# Stands for grpc.aio.ServicerContext, because grpc has no type annotations.
_Context: TypeAlias = Any
_Method = Callable[[bytes, _Context], Awaitable[bytes]]


def add_services(server: grpc.aio.Server, core: Core, fields: Sequence[RequestField]) -> None:
    """Adds TensorFlow Serving's services, backed by `core`, to a server that is not started yet.

    Of the `fields`, only the automatic ones process gRPC requests.
    """
    service = _Services(core, Calls(core, fields))
    server.add_generic_rpc_handlers(
        [
            _handlers("tensorflow.serving.PredictionService", service.prediction_methods()),
            _handlers("tensorflow.serving.ModelService", service.model_methods()),
        ]
    )


class UnknownMethods(grpc.GenericRpcHandler):
    """The last handler of a server, which counts and refuses calls of unknown methods."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def service(self, handler_call_details: Any) -> Any:
        """Returns a refusing handler for any method."""
        return grpc.unary_unary_rpc_method_handler(self._refuse)

    async def _refuse(self, message: bytes, context: _Context) -> None:
        self._core.refusals.add("grpc", Reason.REQUEST, context.peer())
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")


def _handlers(service: str, methods: dict[str, _Method]) -> grpc.GenericRpcHandler:
    """Returns a handler for a service's methods.

    The methods receive unparsed messages, because gRPC's own parsing errors do not describe the cause.
    """
    return grpc.method_handlers_generic_handler(
        service, {name: grpc.unary_unary_rpc_method_handler(_wrap_errors(method)) for name, method in methods.items()}
    )


def _wrap_errors(method: _Method) -> _Method:
    """Wraps a method so that each `ServingError` becomes a gRPC error."""

    async def answer(message: bytes, context: _Context) -> bytes:
        try:
            return await method(message, context)
        except ServingError as error:
            refusal = error.code, error.message
            if error.code is Code.INTERNAL:
                _LOG.error("gRPC: %s", error.message, exc_info=error.__cause__)
        # Outside the except block, because gRPC's exception would keep the first one, and its large outputs, alive.
        await context.abort(*refusal)
        raise AssertionError("abort always raises")

    return answer


class _Services:
    """The methods of both services, which take and return serialized messages."""

    def __init__(self, core: Core, calls: Calls) -> None:
        self._core, self._calls = core, calls
        self._configuring: asyncio.Future[None] | None = None

    def prediction_methods(self) -> dict[str, _Method]:
        """Returns the methods of PredictionService by name."""
        missing = ("Classify", "Regress", "MultiInference")
        return {"Predict": self._predict, "GetModelMetadata": self._metadata, **self._refuse_methods(missing)}

    def model_methods(self) -> dict[str, _Method]:
        """Returns the methods of ModelService by name. Only servers with a configuration file accept a new one."""
        if not self._core.options.model_config_file:
            return {"GetModelStatus": self._status, **self._refuse_methods(["HandleReloadConfigRequest"])}
        return {"GetModelStatus": self._status, "HandleReloadConfigRequest": self._reload}

    async def _predict(self, message: bytes, context: _Context) -> bytes:
        with self._core.metrics.request("grpc", "Predict") as call:
            prediction = await off_loop.run(
                *(len(message), self._begin, call, message, context.time_remaining()),
                give_up=lambda prediction: prediction.queued.give_up(),
            )
            # gRPC cancels this wait, and with it the call, if the client disconnects or its deadline passes.
            outputs = await prediction.queued.result()
            size = memory_of(outputs)
            if size > LARGE_BYTES:
                self._track_response(context, size)
            return await off_loop.run(size, _response, prediction.spec, outputs, prediction.output_names)

    def _track_response(self, context: _Context, size: int) -> None:
        """Counts a large response until it is sent; the time limit is that of REST (`seconds_to_send`)."""
        context.add_done_callback(_callback(self._core.unsent.add(size)))
        task = asyncio.current_task()
        if task:
            # gRPC sends the response in the task of the call.
            ending = asyncio.get_running_loop().call_later(seconds_to_send(size), task.cancel)
            context.add_done_callback(_callback(ending.cancel))

    async def _metadata(self, message: bytes, context: _Context) -> bytes:
        request = self._parse(get_model_metadata_pb2.GetModelMetadataRequest, message)
        with self._core.refusals.counted("grpc", context.peer()):
            return self._description(request)

    def _description(self, request: get_model_metadata_pb2.GetModelMetadataRequest) -> bytes:
        """Returns the response with the signatures of a model."""
        name, version = _target(request)
        if not request.metadata_field:
            raise invalid("GetModelMetadataRequest must specify at least one metadata_field")
        if unknown := set(request.metadata_field) - {"signature_def"}:
            raise invalid(f"Metadata field {', '.join(sorted(unknown))} is not supported")
        with self._core.lend(name, version) as loan:
            response = get_model_metadata_pb2.GetModelMetadataResponse()
            response.model_spec.name = name
            response.model_spec.version.value = loan.model.version
            response.metadata["signature_def"].Pack(loan.model.signature_defs)
            return response.SerializeToString()

    async def _status(self, message: bytes, context: _Context) -> bytes:
        request = self._parse(get_model_status_pb2.GetModelStatusRequest, message)
        with self._core.refusals.counted("grpc", context.peer()):
            return self._core.status(*_target(request)).SerializeToString()

    async def _reload(self, message: bytes, context: _Context) -> bytes:
        request = self._parse(model_management_pb2.ReloadConfigRequest, message)
        if self._configuring and not self._configuring.done():
            raise Busy("another configuration is being applied; try again later")
        # Shielded, because the configuration must be applied even if the client disconnects while models are loaded.
        self._configuring = asyncio.ensure_future(asyncio.to_thread(self._configure, request.config))
        await asyncio.shield(self._configuring)
        return model_management_pb2.ReloadConfigResponse(status={}).SerializeToString()

    def _configure(self, config: model_server_config_pb2.ModelServerConfig) -> None:
        try:
            settings = model_settings(config, "ReloadConfigRequest")
        except InputError as error:
            raise invalid(str(error)) from error
        self._core.models.configure(settings)

    def _refuse_methods(self, names: Iterable[str]) -> dict[str, _Method]:
        """Returns methods, by name, that answer UNIMPLEMENTED to any message."""

        def method(name: str) -> _Method:
            async def refuse(message: bytes, context: _Context) -> bytes:
                with self._core.metrics.request("grpc", name):
                    raise ServingError(Code.UNIMPLEMENTED, f"{name} is not supported")

            return refuse

        return {name: method(name) for name in names}

    def _parse(self, message_type: Any, message: bytes) -> Any:
        """Parses a message other than a prediction request; a message that cannot be parsed is counted."""
        try:
            return _parse(message_type, message)
        except ServingError:
            with self._core.metrics.request("grpc", message_type.DESCRIPTOR.name):
                raise

    def _begin(self, call: Call, message: bytes, client_seconds: float | None) -> "_Prediction":
        """Parses a prediction request and queues its call."""
        request = _parse(predict_pb2.PredictRequest, message)
        name, version = _target(request)
        if self._core.models.get(name):
            call.model = name
        with self._core.lend(name, version) as loan:
            signature = _signature(loan.model, request.model_spec.signature_name)
            call.signature = signature.name
            signature.check_names(request.inputs)
            inputs = {name: self._array(name, signature, proto) for name, proto in request.inputs.items()}
            signature.check_outputs(request.output_filter)
            spec = model_pb2.ModelSpec(name=request.model_spec.name, signature_name=signature.name)
            spec.version.value = loan.model.version
            queued = self._calls.begin_signature(loan, signature, inputs, client_seconds)
            return _Prediction(queued, spec, list(request.output_filter))

    def _array(self, name: str, signature: Signature, proto: tensor_pb2.TensorProto) -> np.ndarray:
        dtype = signature.inputs[name].dtype
        rank = len(proto.tensor_shape.dim)
        # Checked before the sizes are multiplied: a product of ten thousand sizes blocked the server for seconds.
        if rank > MAX_DIMENSIONS:
            raise invalid(f"input {name!r} has {rank} dimensions: the limit is {MAX_DIMENSIONS}")
        sizes = [dimension.size for dimension in proto.tensor_shape.dim]
        # A few bytes can stand for one value repeated over a huge shape, so the shape is checked before unpacking.
        limit = self._core.options.limits.max_body_bytes
        if min(sizes, default=0) < 0 or math.prod(sizes) > limit:
            raise invalid(
                f"input {name!r} has the shape {sizes}: a size is negative, or there are more elements than "
                f"max_body_bytes={limit}"
            )
        if signature.in_rows:
            check_num_rows(max(sizes[:1], default=0), self._core.options.limits)
        if proto.dtype != dtype.as_datatype_enum:
            actual = types_pb2.DataType.Name(proto.dtype) if proto.dtype in types_pb2.DataType.values() else proto.dtype
            raise invalid(f"input {name!r} must be of type {dtype.name}, got {actual}")
        if dtype == tf.string and proto.tensor_content:
            raise invalid(f"input {name!r} has its strings in tensor_content; give them in string_val")
        try:
            return np.asarray(tf.make_ndarray(proto), object if dtype == tf.string else None)
        except Exception as error:
            raise invalid(f"input {name!r} is not a valid tensor: {error}") from error


@dataclasses.dataclass(frozen=True)
class _Prediction:
    """A queued call.

    Attributes:
        queued: the call.
        spec: `ModelSpec` of the response.
        output_names: names of the requested outputs; empty for all.
    """

    queued: QueuedCall
    spec: model_pb2.ModelSpec
    output_names: list[str]


def _parse(message_type: Any, message: bytes) -> Any:
    """Parses a message; raises a `ServingError` if it is not of this type."""
    try:
        return message_type.FromString(message)
    except DecodeError as error:
        raise invalid(f"the message is not a valid {message_type.DESCRIPTOR.name}") from error


def _target(request: Any) -> tuple[str, int | str | None]:
    """Returns the name and the version (number, label or None) of a request's model."""
    if not request.HasField("model_spec"):
        raise invalid("Missing ModelSpec")
    spec = request.model_spec
    if not spec.name:
        raise invalid("ModelSpec has no name specified.")
    if spec.version_label:
        return spec.name, spec.version_label
    return spec.name, spec.version.value if spec.HasField("version") else None


def _signature(model: Model, name: str) -> Signature:
    """Returns a signature by name.

    Raises:
        ServingError: the signature is unknown; with FAILED_PRECONDITION, as in TensorFlow Serving's gRPC interface.
    """
    try:
        return model.signature(name)
    except ServingError as error:
        raise ServingError(Code.FAILED_PRECONDITION, error.message) from error


def _response(spec: model_pb2.ModelSpec, outputs: Arrays, names: Sequence[str]) -> bytes:
    protos = {name: _tensor_proto(outputs[name]) for name in names or outputs}
    return predict_pb2.PredictResponse(model_spec=spec, outputs=protos).SerializeToString()


def _tensor_proto(array: np.ndarray) -> tensor_pb2.TensorProto:
    field = _FIELDS.get(array.dtype.name)
    if not field:
        return tf.make_tensor_proto(array)
    proto = tensor_pb2.TensorProto(dtype=tf.as_dtype(array.dtype).as_datatype_enum)
    proto.tensor_shape.dim.extend(tensor_shape_pb2.TensorShapeProto.Dim(size=size) for size in array.shape)
    values, flat = getattr(proto, field), array.reshape(-1)
    # Copied in pieces, so that other threads can run in between.
    for start in range(0, flat.size, _VALUES_AT_ONCE):
        values.extend(flat[start : start + _VALUES_AT_ONCE].tolist())
    return proto


def _callback(function: Callable[[], None]) -> Callable[[_Context], None]:
    return lambda context: function()

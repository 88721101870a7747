"""Traces a function once for all graphs that call it; it is not inlined, and is optimised only once per device."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig

from t2t_keras.tensor import Tensor

_REWRITES = (
    "arithmetic_optimization",
    "constant_folding",
    "dependency_optimization",
    "function_optimization",
    "implementation_selector",
    "layout_optimizer",
    "loop_optimization",
    "remapping",
    "shape_optimization",
)


class TracedFunction:
    """A traced function of tensors, to be called in graphs, or eagerly for debugging.

    When a graph calls a `tf.function`, TensorFlow infers all shapes inside it again, and every calling graph rewrites
    it. For a whole network this takes most of a second per call; this class avoids both. Create it outside of all
    graphs, tapes and replicas.

    Args:
        function: a function of tensors.
        signature: specs of its arguments.
        fewer_rewrites: whether to disable all of TensorFlow's graph rewrites except the memory optimisation. They take
            as long as tracing, and make no step faster on a CPU.

    Attributes:
        graph: the traced graph.
    """

    def __init__(self, function: Callable, signature: list[tf.TensorSpec], *, fewer_rewrites: bool) -> None:
        self._function = tf.function(
            function, signature, autograph=False, experimental_attributes={"_noinline": True}
        ).get_concrete_function()
        self.graph: tf.Graph = self._function.graph
        self._is_stateful = any(operation.op_def.is_stateful for operation in self.graph.get_operations())
        config = tf.compat.v1.ConfigProto(allow_soft_placement=True)
        if fewer_rewrites:
            for name in _REWRITES:
                setattr(config.graph_options.rewrite_options, name, RewriterConfig.OFF)
            config.graph_options.rewrite_options.disable_model_pruning = True
            config.graph_options.rewrite_options.disable_tfg_optimizer = True
        self._config = config.SerializeToString()

    def __call__(self, *arguments: Tensor) -> Any:
        if tf.executing_eagerly():
            return self._function(*arguments)
        graph = tf.compat.v1.get_default_graph()
        self._function.add_to_graph(graph)
        inputs = [*arguments, *self._function.captured_inputs]
        results = tf.nest.flatten(self._function.structured_outputs)
        attributes = {
            "Tin": _types(inputs),
            "Tout": _types(results),
            "f": _attribute(func={"name": self._function.name}),
            "config_proto": _attribute(s=self._config),
            "executor_type": _attribute(s=b""),
            "_disable_call_shape_inference": _attribute(b=True),
        }
        kind = "StatefulPartitionedCall" if self._is_stateful else "PartitionedCall"
        dtypes = [result.dtype for result in results]
        outputs = graph.create_op(kind, inputs, dtypes, attrs=attributes).outputs
        for output, result in zip(outputs, results, strict=True):
            output.set_shape(result.shape)
        return tf.nest.pack_sequence_as(self._function.structured_outputs, outputs)


def _types(tensors: Any) -> Any:
    return _attribute(list={"type": [tensor.dtype.as_datatype_enum for tensor in tensors]})


def _attribute(**value: Any) -> Any:
    return tf.compat.v1.AttrValue(**value)

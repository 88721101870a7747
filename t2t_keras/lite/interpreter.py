"""TensorFlow Lite's interpreter, with inputs and outputs by name."""

import contextlib
import io
import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from t2t_keras.machine.notices import without_notices


def converted(function: tf.types.experimental.PolymorphicFunction, int8: bool) -> bytes:
    """Converts a traced function that returns a dict of tensors to TensorFlow Lite, with its variables' current values.

    With `int8`, weight matrices are rounded to 8 bits with a scale per column, and their inputs, at run time, per row.
    """
    graph = function.get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([graph], graph)
    if int8:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    with contextlib.redirect_stderr(io.StringIO()), without_notices():
        return converter.convert()


class Interpreter:
    """One converted function and its working memory; `outputs` are the keys of its dict, `threads` is per operation."""

    def __init__(self, content: bytes, outputs: Sequence[str], threads: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns of a move to another package; TensorFlow 2.21 has it
            self._interpreter = tf.lite.Interpreter(model_content=content, num_threads=threads)
        details = self._interpreter.get_input_details()
        self._inputs = {one["name"]: self._interpreter.tensor(one["index"]) for one in details}
        self._indices = {one["name"]: one["index"] for one in details}
        # A graph returns a dict's values in the order of their names.
        named_details = zip(sorted(outputs), self._interpreter.get_output_details(), strict=True)
        self._outputs = {name: self._interpreter.tensor(one["index"]) for name, one in named_details}
        self.invoke = self._interpreter.invoke

    def resize(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Sets the shapes of inputs; their contents are lost."""
        for name, shape in shapes.items():
            self._interpreter.resize_tensor_input(self._indices[name], shape, strict=False)
        self._interpreter.allocate_tensors()

    def input(self, name: str) -> np.ndarray:
        """Writable view of an input; release it before any other call, since the memory may move."""
        return self._inputs[name]()

    def output(self, name: str) -> np.ndarray:
        """Read-only view of an output of the last call; release it before any other call."""
        return self._outputs[name]()

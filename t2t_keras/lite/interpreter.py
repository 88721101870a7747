"""TensorFlow Lite's interpreter, its inputs and outputs by name."""

import contextlib
import io
import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from t2t_keras.machine.notices import without_notices


def converted(function: tf.types.experimental.PolymorphicFunction, int8: bool) -> bytes:
    """A traced function in TensorFlow Lite's format, with the variables that it reads as they are now.

    Args:
        function: with an input signature, that returns a dict of tensors.
        int8: whether matrices that inputs are multiplied with are rounded to 8 bits, a scale for each column; what
            is multiplied with them is rounded when it is there, a scale for each row.
    """
    graph = function.get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([graph], graph)
    if int8:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    with contextlib.redirect_stderr(io.StringIO()), without_notices():
        return converter.convert()


class Interpreter:
    """One converted function, and the memory that it computes in.

    Args:
        content: of `converted`.
        outputs: the names in the dict that the function returns.
        threads: for each operation.
    """

    def __init__(self, content: bytes, outputs: Sequence[str], threads: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it will move to a package of its own; TensorFlow 2.21 has it
            self._interpreter = tf.lite.Interpreter(model_content=content, num_threads=threads)
        details = self._interpreter.get_input_details()
        self._inputs = {one["name"]: self._interpreter.tensor(one["index"]) for one in details}
        self._indices = {one["name"]: one["index"] for one in details}
        # A graph has the values of a dict in the order of their names.
        found = zip(sorted(outputs), self._interpreter.get_output_details(), strict=True)
        self._outputs = {name: self._interpreter.tensor(one["index"]) for name, one in found}
        self.invoke = self._interpreter.invoke

    def resize(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Gives every input a shape; what was in them is lost."""
        for name, shape in shapes.items():
            self._interpreter.resize_tensor_input(self._indices[name], shape, strict=False)
        self._interpreter.allocate_tensors()

    def input(self, name: str) -> np.ndarray:
        """An input, to be written to; let go of it before anything else happens, since it may move."""
        return self._inputs[name]()

    def output(self, name: str) -> np.ndarray:
        """An output of the last call, to be read; let go of it likewise."""
        return self._outputs[name]()

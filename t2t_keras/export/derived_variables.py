"""Tensors that depend only on the weights, computed once when a server loads an export."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from t2t_keras.kernels.contexts import WeightCache


class DerivedVariables(WeightCache):
    """Variables of an export that are not stored in it, but computed from the stored variables when it is loaded.

    Args:
        in_use: returns a context in which the model reads the stored variables.
    """

    def __init__(self, in_use: Callable[[], AbstractContextManager[None]]) -> None:
        self._in_use = in_use
        self._tensors: dict[str, Any] = {}
        self._functions: dict[str, Callable[[], Any]] = {}

    def get(self, name: str, compute: Callable[[], Any]) -> Any:
        if name not in self._tensors:
            with tf.init_scope(), self._in_use():
                self._tensors[name] = tf.nest.map_structure(lambda value: _make_unstored(value, name), compute())
            self._functions[name] = compute
        return self._tensors[name]

    def trackable(self) -> dict[str, Any]:
        """Returns the objects that a `tf.Module` must hold to be saved with these variables.

        Call it after all functions that read the variables are traced.
        """
        return {"variables": tf.nest.flatten(self._tensors), "initializer": _Initializer(self._assign_all)}

    def _assign_all(self) -> None:
        with self._in_use():
            for name, compute in self._functions.items():
                for variable, value in zip(
                    tf.nest.flatten(self._tensors[name]), tf.nest.flatten(compute()), strict=True
                ):
                    if variable is not None:
                        variable.assign(value)


class _Initializer(tf.saved_model.experimental.TrackableResource):
    """Makes every loader, in C++ and in Python, run a function once the stored variables are loaded."""

    def __init__(self, function: Callable[[], None]) -> None:
        super().__init__()
        self._function = function

    def _create_resource(self) -> tf.Tensor:
        return tf.constant(0)  # a placeholder that nothing reads, because there is no resource

    def _initialize(self) -> None:
        self._function()


def _make_unstored(value: tf.Tensor | None, name: str) -> tf.Variable | None:
    """Makes a variable that `tf.saved_model.save` leaves out of the checkpoint."""
    if value is None:
        return None
    variable = tf.Variable(value, trainable=False, name=f"derived/{name}")
    export = variable._export_to_saved_model_graph

    def exported(object_map: Any, tensor_map: Any, options: Any, **arguments: Any) -> Any:
        tensors = export(object_map, tensor_map, options, **arguments)
        object_map[variable]._serialize_to_tensors = dict  # this copy is the one that the graph would restore
        return tensors

    variable._serialize_to_tensors = dict
    variable._export_to_saved_model_graph = exported
    return variable

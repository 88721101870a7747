"""Makes functions with the inputs that the contract of an export defines."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from t2t_keras.export_contract import SIGNATURES


def traceable_signature(
    name: str, function: Callable[..., Any], *state: tf.TensorSpec
) -> tf.types.experimental.GenericFunction:
    """Returns a `tf.function` for a signature; it is traced later.

    Args:
        name: name of the signature.
        function: takes the inputs of the signature, and returns the outputs by name.
        *state: further inputs, if the signature takes the state of a search.
    """
    inputs = SIGNATURES[name].inputs.items()
    specs = [tf.TensorSpec(tensor.shape, tensor.dtype, input_name) for input_name, tensor in inputs]
    return tf.function(function, input_signature=[*specs, *state], autograph=False)

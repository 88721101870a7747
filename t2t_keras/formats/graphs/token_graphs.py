"""A Transformer as two functions of token ids: the encoder, and one step of the decoder beside a cache.

The embeddings and the masks are in the graphs. `formats/graphs/standalone.py` searches with them.
"""

from typing import Any, TypeAlias

import keras
import numpy as np
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.formats.graphs.encoder_graph import encoder_graph
from t2t_keras.formats.graphs.names import KEYS, MEMORY_KEYS, MEMORY_VALUES
from t2t_keras.formats.graphs.step_graph import cache_signature, decoder_step
from t2t_keras.formats.portable_model import PortableModel
from t2t_keras.layers.attention.scores import mask_bias
from t2t_keras.models.families import make_model
from t2t_keras.models.weights import assign_weights
from t2t_keras.symbols import PAD_ID
from t2t_keras.tensor import Tensor

Function: TypeAlias = tf.types.experimental.PolymorphicFunction
_Values = list[tuple[Any, np.ndarray]]
_MOST_BYTES = 2**31 - 2**24  # of a protocol buffer, with some room for all but the weights


class TokenGraphs:
    """The two functions of a model.

    Attributes:
        encode: takes "source_ids", int32 [batch, source_len], each ended by the end symbol and padded with 0. Its dict
            has "memory_bias", float32 [batch, 1, 1, source_len], and of every decoder layer I "memory_keys_I" and
            "memory_values_I", float32 [batch, heads, source_len, d_key or d_value].
        step: takes "token_ids", int32 [batch], the newest of each hypothesis, at first 0; "position", int32 scalar,
            which is 0 for the first; all that `encode` gives; and of every layer "keys_I" and "values_I", float32
            [batch, heads, room, d_key or d_value], of which the first `position` entries count. Its dict has
            "log_probs", float32 [batch, vocab], and "new_keys_I" and "new_values_I", with a room of 1, the entries of
            this position.

    Args:
        model: the model.
        format: what they are made for, in messages.

    Raises:
        InputError: the model has settings that these graphs have no place for, or they would take 2 GB.
    """

    def __init__(self, model: PortableModel, format: str) -> None:
        config = model.sizes
        if config.num_experts or config.attention_window or config.attention_score == "additive":
            raise InputError(f"{format} takes no model with experts, windows or additive scores")
        network: Any = make_model(config)
        assign_weights(network, dict(model.weights))
        functions = _encoder(network), _step(network)
        values = [_values_read(function, network) for function in functions]
        size = sum(array.nbytes for arrays in values for _, array in arrays)
        if size >= _MOST_BYTES:
            raise InputError(f"{format} files end at 2 GB, but the weights of both graphs take {size / 1e9:.1f} GB")
        self.encode, self.step = map(_with_constants, functions, values)


def _values_read(function: Function, network: Any) -> _Values:
    """The weights that a function reads, and their values."""
    read = {id(variable) for variable in function.get_concrete_function().variables}
    return [(variable, variable.numpy()) for variable in network.variables if id(variable.value) in read]


def _with_constants(function: Function, values: _Values) -> Function:
    """The same function with the values of the weights in its graph, as converters need them."""

    def call(*tensors: Tensor) -> dict[str, Tensor]:
        constants = [(variable, tf.constant(value)) for variable, value in values]
        with keras.StatelessScope(state_mapping=constants):
            return function.python_function(*tensors)

    return tf.function(call, input_signature=function.input_signature, autograph=False)


def _encoder(model: Any) -> Function:
    encode_embedded = encoder_graph(model).python_function

    def encode(source_ids: Tensor) -> dict[str, Tensor]:
        inputs = model.source_positions(model.source_embedding(source_ids))  # --> [batch, source_len, d_model]
        bias = mask_bias(tf.not_equal(source_ids, PAD_ID), "float32")  # --> [batch, source_len]
        memory = encode_embedded(inputs, tf.expand_dims(bias, 1))
        outputs = {"memory_bias": tf.expand_dims(tf.expand_dims(bias, 1), 1)}  # --> [batch, 1, 1, source_len]
        for index, layer in enumerate(model.decoder.layers):
            for name in (f"{MEMORY_KEYS}{index}", f"{MEMORY_VALUES}{index}"):
                heads = tf.split(memory[name], layer.cross_attention.num_heads, axis=2)
                outputs[name] = tf.stack(heads, axis=1)  # --> [batch, heads, source_len, d_head]
        return outputs

    signature = [tf.TensorSpec([None, None], tf.int32, "source_ids")]
    return tf.function(encode, input_signature=signature, autograph=False)


def _step(model: Any) -> Function:
    cache = cache_signature(model)
    newest = tf.TensorSpec([None], tf.int32, "token_ids"), tf.TensorSpec([], tf.int32, "position")

    def step(token_ids: Tensor, position: Tensor, *tensors: Tensor) -> dict[str, Tensor]:
        given = dict(zip(cache, tensors, strict=True))
        x = model.target_embedding(tf.expand_dims(token_ids, 1))  # --> [batch, 1, d_model]
        inputs = tf.squeeze(model.target_positions(x, start=position), 1)  # --> [batch, d_model]
        room = tf.shape(given[f"{KEYS}0"])[2]
        bias = mask_bias(tf.range(room) < position, "float32")  # --> [room]
        outputs = decoder_step(model, inputs, tf.reshape(bias, [1, 1, 1, -1]), given)
        return {"log_probs": outputs.pop("log_probs"), **{f"new_{name}": outputs[name] for name in outputs}}

    return tf.function(step, input_signature=[*newest, *cache.values()], autograph=False)

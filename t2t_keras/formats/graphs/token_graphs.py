"""A Transformer as two functions of token ids: the encoder, and one step of the decoder.

The caller keeps the decoder's cache. Embeddings and masks are part of the graphs. `formats/graphs/standalone.py`
searches with them.
"""

from typing import Any, TypeAlias

import keras
import numpy as np
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.formats.portable_model import PortableModel
from t2t_keras.layers import padding_mask
from t2t_keras.layers.attention.multi_head import KeysAndValues
from t2t_keras.models.families import make_model
from t2t_keras.models.weights import assign_weights
from t2t_keras.tensor import Tensor

Function: TypeAlias = tf.types.experimental.PolymorphicFunction
# Names of the graphs' inputs and outputs. Names that end with "_" are followed by the index of a decoder layer.
KEYS, VALUES, MEMORY_KEYS, MEMORY_VALUES = "keys_", "values_", "memory_keys_", "memory_values_"
MEMORY_MASK = "memory_mask"

_Values = list[tuple[Any, np.ndarray]]
_MAX_BYTES = 2**31 - 2**24  # the limit of a protocol buffer, minus some room for everything but the weights


class TokenGraphs:
    """The two functions of a model; I in the names below is the index of a decoder layer.

    Args:
        model: the model.
        format: the name of the target format, for error messages.
        in_one_file: whether both graphs go into one file.

    Attributes:
        encode: maps "source_ids", int32 [batch, source_len], with end symbols and padded with 0, to a dict of
            "memory_mask", bool [batch, 1, 1, source_len], True on tokens, and for every I "memory_keys_I" and
            "memory_values_I", float32 [batch, heads, source_len, d_key or d_value].
        step: takes "token_ids", int32 [batch], the newest token of each hypothesis, 0 in the first step; "position",
            int32 scalar, the number of earlier steps; all outputs of `encode`; and for every I "keys_I" and
            "values_I", float32 [batch, heads, room, d_key or d_value], of which the first `position` entries are read.
            Returns a dict of "log_probs", float32 [batch, vocab], and for every I "new_keys_I" and "new_values_I",
            float32 [batch, heads, 1, d_key or d_value], the entries of this position.

    Raises:
        InputError: the graphs do not support a setting of the model, or a file would exceed 2 GB.
    """

    def __init__(self, model: PortableModel, format: str, *, in_one_file: bool) -> None:
        config = model.sizes
        if config.num_experts or config.attention_window or config.attention_score == "additive":
            raise InputError(f"{format} does not support models with experts, windows or additive scores")
        network: Any = make_model(config)
        assign_weights(network, dict(model.weights))
        functions = _encoder(network), _step(network)
        values = [_weights_of(function, network) for function in functions]
        sizes = [sum(array.nbytes for _, array in arrays) for arrays in values]
        size, subject = (sum(sizes), "both graphs") if in_one_file else (max(sizes), "a graph")
        if size >= _MAX_BYTES:
            raise InputError(
                f"{format} files are limited to 2 GB, but the weights of {subject} take {size / 1e9:.1f} GB"
            )
        self.encode, self.step = map(_with_constants, functions, values)


def _weights_of(function: Function, network: Any) -> _Values:
    """Returns the weights that a function reads, with their values."""
    read = {id(variable) for variable in function.get_concrete_function().variables}
    return [(variable, variable.numpy()) for variable in network.variables if id(variable.value) in read]


def _with_constants(function: Function, values: _Values) -> Function:
    """Returns the same function with its weights as constants in the graph, as converters need them."""

    def call(*tensors: Tensor) -> dict[str, Tensor]:
        constants = [(variable, tf.constant(value)) for variable, value in values]
        with keras.StatelessScope(state_mapping=constants):
            return function.python_function(*tensors)

    return tf.function(call, input_signature=function.input_signature, autograph=False)


def _encoder(model: Any) -> Function:
    def encode(source_ids: Tensor) -> dict[str, Tensor]:
        outputs = {MEMORY_MASK: padding_mask(source_ids)}  # --> [batch, 1, 1, source_len]
        for index, (keys, values) in enumerate(model.decoder.keys_and_values(model.encode(source_ids))):
            outputs |= {f"{MEMORY_KEYS}{index}": keys, f"{MEMORY_VALUES}{index}": values}
        return outputs

    signature = [tf.TensorSpec([None, None], tf.int32, "source_ids")]
    return tf.function(encode, input_signature=signature, autograph=False)


def _step(model: Any) -> Function:
    cache = _cache_signature(model)
    newest = tf.TensorSpec([None], tf.int32, "token_ids"), tf.TensorSpec([], tf.int32, "position")

    def step(token_ids: Tensor, position: Tensor, *tensors: Tensor) -> dict[str, Tensor]:
        state = dict(zip(cache, tensors, strict=True))
        past, memory = (
            [KeysAndValues(state[f"{keys}{index}"], state[f"{values}{index}"]) for index in range(len(layers))]
            for keys, values in ((KEYS, VALUES), (MEMORY_KEYS, MEMORY_VALUES))
        )
        x = model.target_embedding(tf.expand_dims(token_ids, 1))  # --> [batch, 1, d_model]
        x = model.target_positions(x, start=position)
        room = tf.shape(past[0].keys)[2]
        places = tf.range(room + 1)  # the past entries, then the newest one
        mask = tf.reshape((places < position) | (places == room), [1, 1, 1, -1])  # --> [1, 1, 1, room + 1]
        hidden, past = model.decoder(x, memory, mask, state[MEMORY_MASK], past=past, training=False)
        logits = model.logits(hidden[:, 0])  # --> [batch, vocab]
        largest = tf.reduce_max(logits, axis=1, keepdims=True)  # --> [batch, 1]
        total = tf.reduce_sum(tf.exp(logits - largest), axis=1, keepdims=True)
        outputs = {"log_probs": logits - (largest + tf.math.log(total))}
        for index, (keys, values) in enumerate(past):
            outputs |= {f"new_{KEYS}{index}": keys[:, :, -1:], f"new_{VALUES}{index}": values[:, :, -1:]}
        return outputs

    layers = model.decoder.layers
    return tf.function(step, input_signature=[*newest, *cache.values()], autograph=False)


def _cache_signature(model: Any) -> dict[str, tf.TensorSpec]:
    """Returns the inputs of a step other than token and position, by name; see `TokenGraphs`."""
    specs = {MEMORY_MASK: tf.TensorSpec([None, 1, 1, None], tf.bool, MEMORY_MASK)}
    for index, layer in enumerate(model.decoder.layers):
        attention = layer.self_attention
        for names, d_head in zip(((KEYS, MEMORY_KEYS), (VALUES, MEMORY_VALUES)), attention.head_widths, strict=True):
            shape = [None, attention.num_heads, None, d_head]
            specs.update({f"{name}{index}": tf.TensorSpec(shape, tf.float32, f"{name}{index}") for name in names})
    return specs

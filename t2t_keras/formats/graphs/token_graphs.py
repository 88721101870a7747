"""A Transformer as two functions of token ids: the encoder, and one step of the decoder beside a cache kept outside.

The embeddings and the masks are in the graphs. `formats/graphs/standalone.py` searches with them.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import keras
import numpy as np
import tensorflow as tf

from t2t_keras import kernels
from t2t_keras.errors import InputError
from t2t_keras.formats.portable_model import PortableModel
from t2t_keras.kernels import plain
from t2t_keras.layers.attention.scores import mask_bias
from t2t_keras.layers.stepping.attention_step import KeysAndValues, SelfAttentionStep
from t2t_keras.layers.stepping.decoder_step import DecoderStep
from t2t_keras.layers.stepping.projections import Projections
from t2t_keras.models.families import make_model
from t2t_keras.models.weights import assign_weights
from t2t_keras.symbols import PAD_ID
from t2t_keras.tensor import Tensor

Function: TypeAlias = tf.types.experimental.PolymorphicFunction
# Names of the graphs' inputs and outputs; those of layers end with the layer's index.
KEYS, VALUES, MEMORY_KEYS, MEMORY_VALUES = "keys_", "values_", "memory_keys_", "memory_values_"

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
        in_one_file: whether both graphs go into one file.

    Raises:
        InputError: the model has settings that these graphs have no place for, or a file would take 2 GB.
    """

    def __init__(self, model: PortableModel, format: str, *, in_one_file: bool) -> None:
        config = model.sizes
        if config.num_experts or config.attention_window or config.attention_score == "additive":
            raise InputError(f"{format} takes no model with experts, windows or additive scores")
        network: Any = make_model(config)
        assign_weights(network, dict(model.weights))
        functions = _encoder(network), _step(network)
        values = [_values_read(function, network) for function in functions]
        sizes = [sum(array.nbytes for _, array in arrays) for arrays in values]
        size, what = (sum(sizes), "both graphs") if in_one_file else (max(sizes), "a graph")
        if size >= _MOST_BYTES:
            raise InputError(f"{format} files end at 2 GB, but the weights of {what} take {size / 1e9:.1f} GB")
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
    def encode(source_ids: Tensor) -> dict[str, Tensor]:
        inputs = model.source_positions(model.source_embedding(source_ids))  # --> [batch, source_len, d_model]
        bias = mask_bias(tf.not_equal(source_ids, PAD_ID), "float32")  # --> [batch, source_len]
        memory = encoded(model, inputs, tf.expand_dims(bias, 1))
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


def encoded(model: Any, inputs: Tensor, bias: Tensor) -> dict[str, Tensor]:
    """The encoder (left half of Figure 1), and the keys and values of every decoder layer's attention to its output.

    The number of sentences and their length are both open, but a reshape of LiteRT can infer only one size. So
    nothing is reshaped: heads are slices of the last axis, computed one after the other. `inputs`, float32 [batch,
    source_len, d_model], are embedded tokens with positions; `bias`, float32 [batch, 1, source_len], masks padding.
    "memory_keys_I" and "memory_values_I" are float32 [batch, source_len, heads * d_head].
    """
    x = inputs
    for layer in model.encoder.layers:
        x = _residual(layer.self_attention_residual, x, functools.partial(_attended, layer.self_attention, bias))
        x = _residual(layer.feed_forward_residual, x, functools.partial(_transformed, layer.feed_forward))
    if model.encoder.final_norm is not None:
        x = _normalised(model.encoder.final_norm, x)
    outputs = {}
    for index, layer in enumerate(model.decoder.layers):
        attention = layer.cross_attention
        outputs[f"{MEMORY_KEYS}{index}"] = plain.linear(x, attention.key_kernel, attention.key_bias)
        outputs[f"{MEMORY_VALUES}{index}"] = plain.linear(x, attention.value_kernel, attention.value_bias)
    return outputs


def _residual(residual: Any, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
    """`Residual` without dropout."""
    if residual.norm_position == "post":
        return _normalised(residual.norm, x + sublayer(x))
    return x + sublayer(_normalised(residual.norm, x))


def _normalised(norm: Any, x: Tensor) -> Tensor:
    return plain.layer_normalization(x, norm.scale, norm.offset, norm.epsilon)


def _attended(attention: Any, bias: Tensor, x: Tensor) -> Tensor:
    """Self-attention, one head at a time, [batch, source_len, d_model]."""
    step, heads = SelfAttentionStep(attention, Projections("float32"), beam_size=1), attention.num_heads
    projected = plain.linear(x, step.kernel, step.bias)
    widths = [attention.d_key] * 2 * heads + [attention.d_value] * heads
    parts = tf.split(projected, widths, axis=2)  # --> [batch, source_len, d_head] each
    results = []
    for queries, keys, values in zip(parts[:heads], parts[heads : 2 * heads], parts[2 * heads :], strict=True):
        scores = tf.matmul(queries, keys, transpose_b=True) + bias  # --> [batch, source_len, source_len]
        results.append(tf.matmul(tf.nn.softmax(scores), values))  # --> [batch, source_len, d_value]
    return plain.linear(tf.concat(results, axis=2), step.output_kernel, attention.output_bias)


def _transformed(feed_forward: Any, x: Tensor) -> Tensor:
    inner = feed_forward.activate(plain.linear(x, feed_forward.inner_kernel, feed_forward.inner_bias))
    return plain.linear(inner, feed_forward.outer_kernel, feed_forward.outer_bias)


def cache_signature(model: Any) -> dict[str, tf.TensorSpec]:
    """What a step reads beside token and position, by name, all float32; for the shapes see `TokenGraphs`."""
    shapes: dict[str, list[int | None]] = {"memory_bias": [None, 1, 1, None]}
    for index, layer in enumerate(model.decoder.layers):
        attention = layer.self_attention
        for names, d_head in (((KEYS, MEMORY_KEYS), attention.d_key), ((VALUES, MEMORY_VALUES), attention.d_value)):
            shapes.update({f"{name}{index}": [None, attention.num_heads, None, d_head] for name in names})
    return {name: tf.TensorSpec(shape, tf.float32, name) for name, shape in shapes.items()}


def decoder_step(model: Any, inputs: Tensor, bias: Tensor, cache: dict[str, Tensor]) -> dict[str, Tensor]:
    """One position of every hypothesis: "log_probs", float32 [batch, vocab], and the new "keys_I" and "values_I".

    `inputs`, float32 [batch, d_model], are embedded tokens with positions; `bias`, float32 [1, 1, 1, room], masks empty
    entries of the cache, the tensors of `cache_signature`. The new entries are [batch, heads, 1, d_head].
    """
    head = model.output_head
    step, x = DecoderStep(model.decoder, "float32", beam_size=1), inputs
    outputs: dict[str, Tensor] = {}
    for index, layer in enumerate(step.layers):
        past = KeysAndValues(cache[f"{KEYS}{index}"], cache[f"{VALUES}{index}"])
        memory = KeysAndValues(cache[f"{MEMORY_KEYS}{index}"], cache[f"{MEMORY_VALUES}{index}"])
        x, written, _ = layer(x, past, bias, memory, cache["memory_bias"], beside=True)
        outputs |= {f"{KEYS}{index}": written.keys, f"{VALUES}{index}": written.values}
    x = model.decoder.normalised(x)
    logits = kernels.linear(x, head.output_matrix("float32"), head.bias)  # --> [batch, vocab]
    largest = tf.reduce_max(logits, axis=1, keepdims=True)  # --> [batch, 1]
    total = tf.reduce_sum(tf.exp(logits - largest), axis=1, keepdims=True)
    return {"log_probs": logits - (largest + tf.math.log(total)), **outputs}

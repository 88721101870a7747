"""The encoder, with the decoder's keys and values of its output, as a graph for other runtimes."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from t2t_keras.formats.graphs.names import MEMORY_KEYS, MEMORY_VALUES
from t2t_keras.kernels import plain
from t2t_keras.layers.stepping import SelfAttentionStep
from t2t_keras.tensor import Tensor


def encoder_graph(model: Any) -> tf.types.experimental.PolymorphicFunction:
    """The encoder (left half of Figure 1), and the keys and values of every decoder layer's attention to its output.

    The number of sentences and their length are both open, but a reshape of LiteRT can infer only one size. So
    nothing is reshaped: heads are slices of the last axis, computed one after the other. The model computes in float32.

    Returns:
        A function of "inputs", float32 [batch, source_len, d_model], embedded tokens with positions, and "bias",
        float32 [batch, 1, source_len], which masks padding. Its dict has, for every decoder layer I, "memory_keys_I"
        and "memory_values_I", float32 [batch, source_len, heads * d_head].
    """

    def encode(inputs: Tensor, bias: Tensor) -> dict[str, Tensor]:
        x = inputs
        for layer in model.encoder.layers:
            attention, feed_forward = layer.self_attention, layer.feed_forward
            x = _residual(layer.self_attention_residual, x, lambda x, a=attention: _attended(a, x, bias))
            x = _residual(layer.feed_forward_residual, x, lambda x, f=feed_forward: _transformed(f, x))
        if model.encoder.final_norm is not None:
            x = _normalised(model.encoder.final_norm, x)
        outputs = {}
        for index, layer in enumerate(model.decoder.layers):
            attention = layer.cross_attention
            outputs[f"{MEMORY_KEYS}{index}"] = plain.linear(x, attention.key_kernel, attention.key_bias)
            outputs[f"{MEMORY_VALUES}{index}"] = plain.linear(x, attention.value_kernel, attention.value_bias)
        return outputs

    signature = [
        tf.TensorSpec([None, None, model.config.d_model], tf.float32, "inputs"),
        tf.TensorSpec([None, 1, None], tf.float32, "bias"),
    ]
    return tf.function(encode, input_signature=signature, autograph=False)


def _residual(residual: Any, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
    """`Residual` without dropout."""
    if residual.norm_position == "post":
        return _normalised(residual.norm, x + sublayer(x))
    return x + sublayer(_normalised(residual.norm, x))


def _normalised(norm: Any, x: Tensor) -> Tensor:
    return plain.layer_normalization(x, norm.scale, norm.offset, norm.epsilon)


def _attended(attention: Any, x: Tensor, bias: Tensor) -> Tensor:
    """Self-attention, one head at a time, [batch, source_len, d_model]."""
    step, heads = SelfAttentionStep(attention, "float32", beam_size=1), attention.num_heads
    projected = plain.linear(x, step.kernel, step.bias)
    widths = [attention.d_key] * 2 * heads + [attention.d_value] * heads
    parts = tf.split(projected, widths, axis=2)  # --> [batch, source_len, d_head] each
    results = []
    for queries, keys, values in zip(parts[:heads], parts[heads : 2 * heads], parts[2 * heads :], strict=True):
        scores = tf.matmul(queries, keys, transpose_b=True) + bias  # --> [batch, source_len, source_len]
        results.append(tf.matmul(tf.nn.softmax(scores), values))  # --> [batch, source_len, d_value]
    return plain.linear(tf.concat(results, axis=2), step.output_kernel, attention.output_bias)


def _transformed(feed_forward: Any, x: Tensor) -> Tensor:
    """The feed-forward network."""
    inner = feed_forward.activate(plain.linear(x, feed_forward.inner_kernel, feed_forward.inner_bias))
    return plain.linear(inner, feed_forward.outer_kernel, feed_forward.outer_bias)

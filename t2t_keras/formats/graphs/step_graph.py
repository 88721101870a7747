"""The decoder at one position, with a cache that is kept outside the graph."""

from typing import Any

import tensorflow as tf

from t2t_keras import kernels
from t2t_keras.formats.graphs.names import KEYS, MEMORY_KEYS, MEMORY_VALUES, VALUES
from t2t_keras.layers.stepping import DecoderStep, KeysAndValues
from t2t_keras.tensor import Tensor


def cache_signature(model: Any) -> dict[str, tf.TensorSpec]:
    """What a step reads beside its position, by name, all float32.

    "memory_bias" is [batch, 1, 1, source_len]; of every layer I "keys_I" and "values_I" are [batch, heads, room,
    d_head], "memory_keys_I" and "memory_values_I" [batch, heads, source_len, d_head].
    """
    shapes: dict[str, list[int | None]] = {"memory_bias": [None, 1, 1, None]}
    for index, layer in enumerate(model.decoder.layers):
        attention = layer.self_attention
        for names, d_head in (((KEYS, MEMORY_KEYS), attention.d_key), ((VALUES, MEMORY_VALUES), attention.d_value)):
            shapes.update({f"{name}{index}": [None, attention.num_heads, None, d_head] for name in names})
    return {name: tf.TensorSpec(shape, tf.float32, name) for name, shape in shapes.items()}


def decoder_step(model: Any, inputs: Tensor, bias: Tensor, cache: dict[str, Tensor]) -> dict[str, Tensor]:
    """One position of every hypothesis of a float32 model.

    Args:
        model: a `Transformer` without experts, windows or additive scores.
        inputs: float32 [batch, d_model], embedded tokens with positions.
        bias: float32 [1, 1, 1, room], which masks empty entries of the cache.
        cache: the tensors of `cache_signature`.

    Returns:
        "log_probs", float32 [batch, vocab], and of every layer the new "keys_I" and "values_I", [batch, heads, 1,
        d_head].
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

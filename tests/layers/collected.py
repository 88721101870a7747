"""Calls attention and returns its weights as well."""

from t2t_keras.layers.collectors import AttentionWeights


def call_with_weights(layer, *arguments, **named) -> tuple:
    """Returns the outputs of a `MultiHeadAttention` and its weights, [batch, heads, query_len, key_len].

    While weights are collected, the layer applies a window as a mask.
    """
    with AttentionWeights() as collector:
        outputs = layer(*arguments, **named)
    return outputs, collector.weights[0]

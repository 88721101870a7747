"""Attention with its weights."""

from t2t_keras.layers.collectors import AttentionWeights


def attended(layer, *arguments, **named) -> tuple:
    """The outputs of a `MultiHeadAttention`, and its weights, [batch, heads, query_len, key_len].

    While weights are collected, a window is a mask.
    """
    with AttentionWeights() as collector:
        outputs = layer(*arguments, **named)
    return outputs, collector.weights[0]

"""Additive attention: a score from one hidden layer instead of a product."""

from typing import Any

import keras
from keras import ops

from t2t_keras import kernels
from t2t_keras.layers.attention.scores import additive_scores
from t2t_keras.tensor import Tensor


@keras.saving.register_keras_serializable(package="t2t_keras")
class AdditiveAttention(keras.layers.Layer):
    """Weighs a memory by softmax(v . tanh(W q + U m)).

    Args:
        d_attention: width of the hidden layer.

    Call arguments:
        queries: float [batch, query_len, d_query].
        memory: float [batch, key_len, d_memory].
        keys: float [batch, key_len, d_attention], the memory's part of the hidden layer, from `keys`.
        bias: a `mask_bias`, broadcastable to [batch, query_len, key_len], or None.

    Returns:
        float [batch, query_len, d_memory], and the weights, float [batch, query_len, key_len].

    Reference: Bahdanau et al., "Neural Machine Translation by Jointly Learning to Align and Translate", 2015.
    """

    def __init__(self, d_attention: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if d_attention < 1:
            raise ValueError(f"`d_attention` must be at least 1, got {d_attention}")
        self.d_attention = d_attention

    def build(self, queries_shape: tuple, memory_shape: tuple) -> None:
        self.query_kernel = self.add_weight(shape=(queries_shape[-1], self.d_attention), name="query_kernel")
        self.memory_kernel = self.add_weight(shape=(memory_shape[-1], self.d_attention), name="memory_kernel")
        self.bias = self.add_weight(shape=(self.d_attention,), initializer="zeros", name="bias")
        self.score = self.add_weight(shape=(self.d_attention, 1), name="score")

    def keys(self, memory: Tensor) -> Tensor:
        """The memory's part of the hidden layer, float [batch, key_len, d_attention], computed once a sentence."""
        return kernels.linear(memory, self.memory_kernel, self.bias)

    def call(self, queries: Tensor, memory: Tensor, keys: Tensor, bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
        hidden = ops.tanh(kernels.linear(queries, self.query_kernel, None)[:, :, None] + keys[:, None])
        scores = kernels.linear(hidden, self.score, None)[..., 0]  # --> [batch, query_len, key_len]
        weights = kernels.softmax(scores if bias is None else scores + bias)
        return ops.matmul(weights, memory), weights  # --> [batch, query_len, d_memory]

    def attention_weights(self, queries: Tensor, keys: Tensor, bias: Tensor | None = None) -> Tensor:
        """The weights of `call` alone, without the hidden layer of all pairs at once, for many queries."""
        scores = additive_scores(kernels.linear(queries, self.query_kernel, None), keys, self.score[:, 0])
        return kernels.softmax(scores if bias is None else scores + bias)

    def compute_output_shape(self, queries_shape: tuple, memory_shape: tuple, *_: Any) -> tuple[tuple, tuple]:
        return (*queries_shape[:-1], memory_shape[-1]), (*queries_shape[:-1], memory_shape[-2])

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "d_attention": self.d_attention}

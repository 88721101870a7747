"""Multiplicative attention of hidden layers: cheaper than additive attention, which it is to stand for."""

from typing import Any

import keras
from keras import ops

from t2t_keras import kernels
from t2t_keras.tensor import Tensor


@keras.saving.register_keras_serializable(package="t2t_keras")
class MultiplicativeAttention(keras.layers.Layer):
    """Weighs a memory by softmax(sum_d v_d tanh(q W)_d tanh(m U)_d), the scores of all pairs being one product.

    Args:
        d_attention: width of the hidden layers.

    Call arguments:
        queries: float [batch, query_len, d_query].
        memory: float [batch, key_len, d_memory].
        keys: float [batch, key_len, d_attention], the memory's hidden layer, from `keys`.
        bias: a `mask_bias`, broadcastable to [batch, query_len, key_len], or None.

    Returns:
        float [batch, query_len, d_memory], and the weights, float [batch, query_len, key_len].

    Reference: Shazeer et al., "Outrageously Large Neural Networks: The Sparsely-Gated Mixture-of-Experts Layer", 2017,
    appendix G.
    """

    def __init__(self, d_attention: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if d_attention < 1:
            raise ValueError(f"`d_attention` must be at least 1, got {d_attention}")
        self.d_attention = d_attention

    def build(self, queries_shape: tuple, memory_shape: tuple) -> None:
        self.query_kernel = self.add_weight(shape=(queries_shape[-1], self.d_attention), name="query_kernel")
        self.memory_kernel = self.add_weight(shape=(memory_shape[-1], self.d_attention), name="memory_kernel")
        scale = keras.initializers.Constant(self.d_attention**-0.5)  # as in scaled dot-product attention
        self.score = self.add_weight(shape=(self.d_attention,), initializer=scale, name="score")

    def keys(self, memory: Tensor) -> Tensor:
        """The memory's hidden layer, float [batch, key_len, d_attention], computed once a sentence."""
        return ops.tanh(kernels.linear(memory, self.memory_kernel, None))

    def call(self, queries: Tensor, memory: Tensor, keys: Tensor, bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
        hidden = ops.tanh(kernels.linear(queries, self.query_kernel, None))  # --> [batch, query_len, d_attention]
        scores = kernels.scores(hidden * ops.cast(self.score, hidden.dtype), keys)  # --> [batch, query_len, key_len]
        weights = kernels.softmax(scores if bias is None else scores + bias)
        return ops.matmul(weights, memory), weights  # --> [batch, query_len, d_memory]

    def compute_output_shape(self, queries_shape: tuple, memory_shape: tuple, *_: Any) -> tuple[tuple, tuple]:
        return (*queries_shape[:-1], memory_shape[-1]), (*queries_shape[:-1], memory_shape[-2])

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "d_attention": self.d_attention}

"""Attention whose scores come from hidden layers instead of a product of queries and keys."""

from typing import Any

import keras
from keras import ops

from t2t_keras import kernels
from t2t_keras.layers.attention.scores import additive_scores
from t2t_keras.layers.layer import Layer
from t2t_keras.tensor import Tensor
from t2t_keras.values import PositiveInt, check_arguments


class HiddenAttention(Layer):
    """Base class of attention that weights a memory by the softmax of a subclass's `scores`.

    Args:
        d_attention: width of the hidden layers.

    Call arguments:
        queries: float [batch, query_len, d_query].
        memory: float [batch, key_len, d_memory].
        keys: float [batch, key_len, d_attention], the result of the method `keys` for this memory.
        bias: a `mask_bias`, broadcastable to [batch, query_len, key_len], or None.

    Returns:
        The contexts, float [batch, query_len, d_memory], and the weights, float [batch, query_len, key_len].
    """

    def __init__(self, d_attention: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_arguments(PositiveInt, d_attention=d_attention)
        self.d_attention = d_attention

    def build(self, queries_shape: tuple, memory_shape: tuple) -> None:
        self.query_kernel = self.add_weight(shape=(queries_shape[-1], self.d_attention), name="query_kernel")
        self.memory_kernel = self.add_weight(shape=(memory_shape[-1], self.d_attention), name="memory_kernel")

    def keys(self, memory: Tensor) -> Tensor:
        """Returns the keys of a memory, which are computed once per sentence: float [batch, key_len, d_attention]."""
        raise NotImplementedError

    def scores(self, queries: Tensor, keys: Tensor, *, many: bool = False) -> Tensor:
        """Returns the scores of all pairs of a query and a key, float [batch, query_len, key_len].

        With `many`, the hidden layers of all pairs are never in memory at once.
        """
        raise NotImplementedError

    def call(self, queries: Tensor, memory: Tensor, keys: Tensor, bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
        scores = self.scores(queries, keys)
        weights = kernels.softmax(scores if bias is None else scores + bias)
        return ops.matmul(weights, memory), weights  # --> [batch, query_len, d_memory]

    def attention_weights(self, queries: Tensor, keys: Tensor, bias: Tensor) -> Tensor:
        """Returns only the weights of `call`, computed as for `many` queries."""
        return kernels.softmax(self.scores(queries, keys, many=True) + bias)

    def compute_output_shape(self, queries_shape: tuple, memory_shape: tuple, *_: Any) -> tuple[tuple, tuple]:
        return (*queries_shape[:-1], memory_shape[-1]), (*queries_shape[:-1], memory_shape[-2])


@keras.saving.register_keras_serializable(package="t2t_keras")
class AdditiveAttention(HiddenAttention):
    """Additive attention: v . tanh(W q + U m), with one hidden layer per pair; see `HiddenAttention`.

    Reference: Bahdanau et al., "Neural Machine Translation by Jointly Learning to Align and Translate", 2015.
    """

    def build(self, queries_shape: tuple, memory_shape: tuple) -> None:
        super().build(queries_shape, memory_shape)
        self.bias = self.add_weight(shape=(self.d_attention,), initializer="zeros", name="bias")
        self.score = self.add_weight(shape=(self.d_attention, 1), name="score")

    def keys(self, memory: Tensor) -> Tensor:
        return kernels.linear(memory, self.memory_kernel, self.bias)

    def scores(self, queries: Tensor, keys: Tensor, *, many: bool = False) -> Tensor:
        projected = kernels.linear(queries, self.query_kernel, None)
        if many:
            return additive_scores(projected, keys, self.score[:, 0])
        hidden = ops.tanh(projected[:, :, None] + keys[:, None])  # --> [batch, query_len, key_len, d_attention]
        return kernels.linear(hidden, self.score, None)[..., 0]


@keras.saving.register_keras_serializable(package="t2t_keras")
class MultiplicativeAttention(HiddenAttention):
    """A substitute for additive attention: sum_d v_d tanh(W q)_d tanh(U m)_d, in one product for all pairs.

    See `HiddenAttention`.

    Reference: Shazeer et al., "Outrageously Large Neural Networks: The Sparsely-Gated Mixture-of-Experts Layer", 2017,
    appendix G.
    """

    def build(self, queries_shape: tuple, memory_shape: tuple) -> None:
        super().build(queries_shape, memory_shape)
        scale = keras.initializers.Constant(self.d_attention**-0.5)  # as in scaled dot-product attention
        self.score = self.add_weight(shape=(self.d_attention,), initializer=scale, name="score")

    def keys(self, memory: Tensor) -> Tensor:
        return ops.tanh(kernels.linear(memory, self.memory_kernel, None))

    def scores(self, queries: Tensor, keys: Tensor, *, many: bool = False) -> Tensor:
        hidden = ops.tanh(kernels.linear(queries, self.query_kernel, None))  # --> [batch, query_len, d_attention]
        return kernels.scores(hidden * ops.cast(self.score, hidden.dtype), keys)

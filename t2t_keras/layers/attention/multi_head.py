"""Multi-head attention (Figure 2)."""

import functools
import numbers
from collections.abc import Callable
from typing import Any, get_args

import keras
from keras import ops

from t2t_keras import kernels
from t2t_keras.layers.attention.masks import window_mask, with_heads
from t2t_keras.layers.attention.scores import (
    Score,
    additive_attention,
    mask_bias,
    over_root_of_width,
    scaled_dot_product_attention,
)
from t2t_keras.layers.attention.window import window_attention
from t2t_keras.layers.collectors import AttentionWeights
from t2t_keras.layers.dropout import Dropout
from t2t_keras.layers.layer import Layer, check_at_least_one, takes
from t2t_keras.tensor import Tensor

# Most elements of kernels to concatenate for one wider product: larger copies cost more than the product saves.
MOST_JOINED = 2**18


def _heads_first(x: Tensor) -> Tensor:
    """Moves the heads to the front: broadcastable to [batch, heads, ...] --> broadcastable to [heads, batch, ...]."""
    for _ in range(len(x.shape), 4):
        x = ops.expand_dims(x, 0)
    return ops.swapaxes(x, 0, 1)


@keras.saving.register_keras_serializable(package="t2t_keras")
class MultiHeadAttention(Layer):
    """Attention in several representation subspaces at once (section 3.2.2, Figure 2).

    MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O with head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V). Keys and
    values come from one sequence, the memory. Self-attention is `attention(x, x)`.

    Args:
        num_heads: h; like the widths at least 1, else ValueError.
        d_key: width of a head's queries and keys.
        d_value: width of a head's values; None means d_key.
        dropout_rate: dropout on the attention weights; the paper uses none.
        use_bias: whether the four projections have biases.
        score: "scaled_dot", q . k / sqrt(d_key) (equation 1), or what section 3.2.1 compares it with: "dot", q . k, or
            "additive", v . tanh(q + k) with one v, float [d_key], for each head.
        window: restricts self-attention (section 4) to so many positions before and after each; (r, r) is the paper's
            neighbourhood of size 2 r + 1, (r, 0) its causal form. Costs O(window * length). None means all positions.
        query_key_initializer: Keras's initializer of the kernels of queries and keys, or its name. "lecun_uniform"
            gives queries and keys of unit variance, as section 3.2.1 supposes; Glorot's are the smaller the wider they
            are.

    Call arguments:
        query: float [batch, query_len, d_model].
        memory: float [batch, key_len, d_model].
        attention_mask: bool, broadcastable to [batch, heads, query_len, key_len], True = may attend; with three axes,
            to [batch, query_len, key_len]. With a window, the same for all queries, as `padding_mask` is: length 1 in
            the axis query_len, else ValueError.
        seed: int32 [2], for dropout; None draws a seed.

    Returns:
        float [batch, query_len, d_model].

    Example:
        >>> x = np.ones([2, 5, 8], "float32")
        >>> MultiHeadAttention(num_heads=2, d_key=4)(x, x).shape
        TensorShape([2, 5, 8])
    """

    def __init__(
        self,
        num_heads: int,
        d_key: int,
        d_value: int | None = None,
        dropout_rate: float = 0.0,
        use_bias: bool = True,
        score: Score = "scaled_dot",
        window: tuple[int, int] | None = None,
        query_key_initializer: str | keras.initializers.Initializer = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_at_least_one(num_heads=num_heads, d_key=d_key, d_value=d_value)
        if score not in get_args(Score):
            raise ValueError(f"`score` must be one of {get_args(Score)}, got {score!r}")
        if window is not None and not _is_window(window):
            raise ValueError(f"`window` must be two whole numbers of at least 0, got {window}")
        self.num_heads = num_heads
        self.d_key = d_key
        self.d_value = d_value or d_key
        self.dropout_rate = dropout_rate
        self.use_bias = use_bias
        self.score = score
        self.window = None if window is None else (window[0], window[1])
        self.query_key_initializer = query_key_initializer
        self.dropout = Dropout(dropout_rate, name="dropout", dtype=self.dtype_policy)

    def build(self, query_shape: tuple, memory_shape: tuple) -> None:
        self.input_spec = takes(3, query_shape)
        d_model, d_memory = query_shape[-1], memory_shape[-1]
        heads_key, heads_value = self.num_heads * self.d_key, self.num_heads * self.d_value
        self.query_kernel, self.query_bias = self._projection("query", d_model, heads_key, self.query_key_initializer)
        self.key_kernel, self.key_bias = self._projection("key", d_memory, heads_key, self.query_key_initializer)
        self.value_kernel, self.value_bias = self._projection("value", d_memory, heads_value)
        self.output_kernel, self.output_bias = self._projection("output", heads_value, d_model)
        self.score_vector = None
        if self.score == "additive":
            self.score_vector = self.add_weight(shape=(self.num_heads, self.d_key), name="score_vector")

    def call(
        self, query: Tensor, memory: Tensor, attention_mask: Tensor | None = None, seed: Tensor | None = None
    ) -> Tensor:
        collector = AttentionWeights.innermost()
        if self.window is None or collector is not None:
            outputs, weights = self.attend(query, memory, attention_mask, seed)
            if collector is not None:
                collector.weights.append(ops.swapaxes(weights, 0, 1))  # --> [batch, heads, query_len, key_len]
            return outputs
        attention_mask = self._checked_mask(query, memory, attention_mask)
        self._check_window(query, memory, attention_mask)
        heads = window_attention(
            *self._project(query, memory),
            window=self.window,
            key_mask=None if attention_mask is None else _heads_first(attention_mask),
            attention=functools.partial(
                self.attention_function(2), dropout=lambda weights: self.dropout(weights, seed=seed)
            ),
        )  # --> [heads, batch, query_len, d_value]
        return self._output(heads, query)

    def attend(
        self, query: Tensor, memory: Tensor, attention_mask: Tensor | None = None, seed: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The call's result and the attention weights before dropout, float [heads, batch, query_len, key_len].

        A window is a mask here: weights outside of it are 0, and cost as much as the others. Only where a window has
        nothing to attend to is the call's result another.
        """
        queries, keys, values = self._project(query, memory)  # --> [heads, batch, length, d_head] each
        attention_mask = self._checked_mask(query, memory, attention_mask)
        if self.window is not None:
            within = window_mask(ops.shape(query)[1], self.window)
            attention_mask = within if attention_mask is None else ops.logical_and(attention_mask, within)
        bias = mask_bias(attention_mask, queries.dtype)
        heads, weights = self.attention_function(1)(
            queries,
            keys,
            values,
            bias=None if bias is None else _heads_first(bias),
            dropout=lambda weights: self.dropout(weights, seed=seed),
        )  # --> [heads, batch, query_len, d_value], [heads, batch, query_len, key_len]
        return self._output(heads, query), weights

    def attention_function(self, axes_after_heads: int) -> Callable[..., tuple[Tensor, Tensor]]:
        """The function that attends: equation 1 for queries from `query_projection`, or `additive_attention`.

        Args:
            axes_after_heads: axes of its arguments between heads and length: 1 in [heads, batch, length, d_head].
        """
        if self.score_vector is None:
            return functools.partial(scaled_dot_product_attention, scale=1.0)
        axes = (self.num_heads, *[1] * axes_after_heads, self.d_key)
        return functools.partial(additive_attention, vector=ops.reshape(self.score_vector, axes))

    def _output(self, heads: Tensor, query: Tensor) -> Tensor:
        """Concat(head_1, ..., head_h) W^O: float [heads, batch, query_len, d_value] --> [batch, query_len, d_model]."""
        heads = ops.reshape(heads, (self.num_heads, -1, self.d_value))  # --> [heads, batch * query_len, d_value]
        concatenated = ops.reshape(ops.transpose(heads, (1, 0, 2)), (-1, self.num_heads * self.d_value))
        outputs = kernels.linear(concatenated, self.output_kernel, self.output_bias)  # --> [batch * query_len, d_model]
        return kernels.reshape_like(outputs, query)  # --> [batch, query_len, d_model]

    def _checked_mask(self, query: Tensor, memory: Tensor, mask: Tensor | None) -> Tensor | None:
        """The mask with an axis for the heads; a ValueError for one that cannot be of these scores."""
        mask = with_heads(mask)
        if mask is not None:
            wanted = (query.shape[0], self.num_heads, query.shape[1], memory.shape[1])
            sizes = zip(reversed(tuple(mask.shape)), reversed(wanted), strict=False)
            if len(mask.shape) > 4 or any(size not in (None, 1, most) and most is not None for size, most in sizes):
                raise ValueError(
                    f"`attention_mask` must be broadcastable to [batch, heads, query_len, key_len], here {wanted}, "
                    f"got the shape {tuple(mask.shape)}; `padding_mask` makes one of token ids"
                )
        return mask

    def _check_window(self, query: Tensor, memory: Tensor, attention_mask: Tensor | None) -> None:
        """Refuses what a window cannot be used with."""
        if attention_mask is not None and len(attention_mask.shape) > 1 and attention_mask.shape[-2] != 1:
            raise ValueError(
                "with `window`, `attention_mask` must be the same for all queries, [batch, heads, 1, key_len] or "
                f"broadcastable to it; got the shape {tuple(attention_mask.shape)}"
            )
        if None not in (query.shape[1], memory.shape[1]) and query.shape[1] != memory.shape[1]:
            raise ValueError(f"`window` is for self-attention; got lengths {query.shape[1]} and {memory.shape[1]}")

    def _project(self, query: Tensor, memory: Tensor) -> list[Tensor]:
        """Queries, scaled if the score is, keys and values, float [heads, batch, length, d_head] each."""
        for name, x, kernel in (("query", query, self.query_kernel), ("memory", memory, self.key_kernel)):
            if len(x.shape) != 3 or x.shape[-1] != kernel.shape[0]:
                wanted = f"[batch, length, {kernel.shape[0]}]"
                raise ValueError(f"`{name}` must be {wanted}, as it was built for, got the shape {tuple(x.shape)}")
        queries = self.query_projection()
        others = (self.key_kernel, self.key_bias, self.d_key), (self.value_kernel, self.value_bias, self.d_value)
        if query is memory:
            return self._heads(query, queries, *others)
        return self._heads(query, queries) + self._heads(memory, *others)

    def query_projection(self) -> tuple[Tensor, Tensor | None, int]:
        """Kernel, bias and head width of queries; a scaled score's queries come out divided by sqrt(d_key)."""
        kernel, bias = self.query_kernel, self.query_bias
        if self.score == "scaled_dot":
            kernel = over_root_of_width(kernel, self.d_key)
            bias = over_root_of_width(bias, self.d_key) if self.use_bias else None
        return kernel, bias, self.d_key

    def _heads(self, x: Tensor, *projections: tuple[Tensor, Tensor | None, int]) -> list[Tensor]:
        """Projects [batch, length, d_model] with each (kernel, bias, head width) to [heads, batch, length, d_head].
        Small kernels of equal head width share one product and, because the heads come first, one transposition.
        """
        kernel_parts, bias_parts, widths = zip(*projections, strict=True)
        elements = sum(kernel.shape[0] * kernel.shape[1] for kernel in kernel_parts)
        if len(projections) > 1 and (len(set(widths)) > 1 or elements > MOST_JOINED):
            return [part for projection in projections for part in self._heads(x, projection)]
        batch, length, d_model = kernels.shape(x)
        count = len(projections)
        kernel, bias = kernel_parts[0], bias_parts[0]
        if count > 1:
            kernel = ops.concatenate(kernel_parts, axis=1)  # --> [d_model, count * heads * d_head]
            bias = ops.concatenate(bias_parts, axis=0) if self.use_bias else None
        rows = ops.reshape(x, (-1, d_model))  # --> [batch * length, d_model]
        projected = kernels.linear(rows, kernel, bias)  # --> [batch * length, count * heads * d_head]
        projected = ops.reshape(projected, (-1, count * self.num_heads, widths[0]))
        projected = ops.transpose(projected, (1, 0, 2))  # --> [count * heads, batch * length, d_head]
        projected = ops.reshape(projected, (count * self.num_heads, batch, length, widths[0]))
        return ops.split(projected, count, axis=0) if count > 1 else [projected]

    def _projection(self, name: str, d_in: int, d_out: int, initializer: Any = "glorot_uniform") -> tuple[Any, Any]:
        if isinstance(initializer, keras.initializers.Initializer):
            initializer = initializer.clone()  # one for two kernels would give both the same numbers
        kernel = self.add_weight(shape=(d_in, d_out), initializer=initializer, name=f"{name}_kernel")
        bias = self.add_weight(shape=(d_out,), initializer="zeros", name=f"{name}_bias") if self.use_bias else None
        return kernel, bias


def _is_window(window: Any) -> bool:
    """Whether it is two whole numbers of at least 0."""
    is_pair = isinstance(window, tuple | list) and len(window) == 2
    return is_pair and all(isinstance(reach, numbers.Integral) and int(reach) >= 0 for reach in window)

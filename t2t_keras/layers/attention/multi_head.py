"""Multi-head attention (Figure 2)."""

import functools
import numbers
from collections.abc import Callable
from typing import Any, NamedTuple, get_args

import keras
from keras import ops

from t2t_keras import kernels
from t2t_keras.config.layer_settings import AttentionScore
from t2t_keras.kernels.made_ready import ReadyWeights, made_ready
from t2t_keras.kernels.plain import product_dtype
from t2t_keras.layers.attention.masks import window_mask, with_heads
from t2t_keras.layers.attention.scores import (
    additive_attention,
    dot_product_attention,
    scaled_dot_product_attention,
)
from t2t_keras.layers.attention.window import window_attention
from t2t_keras.layers.collectors import AttentionWeights
from t2t_keras.layers.dropout import Dropout
from t2t_keras.layers.layer import Layer, check_at_least_one, input_spec_of
from t2t_keras.tensor import Tensor

# Maximum number of kernel elements to concatenate for one wider product: copying more costs more than it saves.
MOST_JOINED = 2**18


class KeysAndValues(NamedTuple):
    """A memory projected to keys and values, split into heads.

    Attributes:
        keys: float [batch, heads, key_len, d_key].
        values: float [batch, heads, key_len, d_value].
    """

    keys: Tensor
    values: Tensor

    def newest(self, count: int) -> "KeysAndValues":
        """The keys and values of the last `count` positions."""
        return KeysAndValues(*(each[:, :, -count:] for each in self))

    def followed_by(self, newer: "KeysAndValues") -> "KeysAndValues":
        """Appends the keys and values of later positions."""
        return KeysAndValues(*(ops.concatenate(pair, axis=2) for pair in zip(self, newer, strict=True)))


@keras.saving.register_keras_serializable(package="t2t_keras")
class MultiHeadAttention(Layer):
    """Attention in several representation subspaces at once (section 3.2.2, Figure 2).

    MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O with head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V). Keys and
    values come from the same sequence, the memory. Self-attention is `attention(x, x)`.

    Args:
        num_heads: number of heads, the paper's h; at least 1.
        d_key: width of a head's queries and keys; None means d_model / num_heads, as in the paper.
        d_value: width of a head's values; None means d_model / num_heads.
        dropout_rate: dropout on the attention weights; not used in the paper.
        use_bias: whether the four projections have biases.
        score: "scaled_dot" for q . k / sqrt(d_key) (equation 1), or one of the alternatives that section 3.2.1
            discusses: "dot" for q . k, or "additive" for v . tanh(q + k) with one v, float [d_key], per head.
        window: restricts self-attention to this many positions before and after each one (section 4). (r, r) is the
            paper's neighbourhood of size 2 r + 1, and (r, 0) its causal form. The cost is O(window * length). None
            means all positions.
        query_key_initializer: Keras initializer of the query and key kernels, or its name. With "lecun_uniform",
            queries and keys initially have unit variance, as section 3.2.1 assumes. With Glorot initializers, their
            variance falls as their width grows.
        gain: factor on the initial query, key and value kernels. fairseq uses 1 / sqrt(2).

    Call arguments:
        query: float [batch, query_len, d_model].
        memory: float [batch, key_len, d_memory]; or its projection by `keys_and_values`; a window is then ignored.
        attention_mask: bool, broadcastable to [batch, heads, query_len, key_len], True = may attend; a mask with three
            axes is [batch, query_len, key_len]. With a window, it must be the same for all queries, as `padding_mask`
            is: its query_len axis must have length 1.
        seed: int32 [2], for dropout; None draws a seed.
        past: in self-attention, the keys and values of earlier positions; a window is then ignored.

    Returns:
        float [batch, query_len, d_model]. If `past` is given, a tuple of that and the past extended by these positions.

    Raises:
        ValueError: an invalid argument, inputs of the wrong shape, or a mask that does not fit.

    Example:
        >>> x = np.ones([2, 5, 8], "float32")
        >>> MultiHeadAttention(num_heads=2, d_key=4)(x, x).shape
        TensorShape([2, 5, 8])
    """

    def __init__(
        self,
        num_heads: int,
        d_key: int | None = None,
        d_value: int | None = None,
        dropout_rate: float = 0.0,
        use_bias: bool = True,
        score: AttentionScore = "scaled_dot",
        window: tuple[int, int] | None = None,
        query_key_initializer: str | keras.initializers.Initializer = "glorot_uniform",
        gain: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_at_least_one(num_heads=num_heads, d_key=d_key, d_value=d_value)
        if score not in get_args(AttentionScore):
            raise ValueError(f"`score` must be one of {get_args(AttentionScore)}, got {score!r}")
        if window is not None and not _is_window(window):
            raise ValueError(f"`window` must be two whole numbers of at least 0, got {window}")
        if not gain > 0:
            raise ValueError(f"`gain` must be positive, got {gain}")
        self.num_heads = num_heads
        self.d_key = d_key
        self.d_value = d_value
        self.dropout_rate = dropout_rate
        self.use_bias = use_bias
        self.score = score
        self.window = None if window is None else (window[0], window[1])
        self.query_key_initializer = query_key_initializer
        self.gain = gain
        self.dropout = Dropout(dropout_rate, name="dropout", dtype=self.dtype_policy)

    def build(self, query_shape: tuple, memory_shape: tuple) -> None:
        self.input_spec = input_spec_of(3, query_shape)
        d_model, d_memory = query_shape[-1], memory_shape[-1]
        if None in (self.d_key, self.d_value) and d_model % self.num_heads:
            raise ValueError(
                f"`num_heads`={self.num_heads} does not divide d_model={d_model}; give `d_key` and `d_value`"
            )
        d_head = d_model // self.num_heads
        self.head_widths = self.d_key or d_head, self.d_value or d_head
        heads_key, heads_value = (self.num_heads * width for width in self.head_widths)
        query_key = self.query_key_initializer, self.gain
        self.query_kernel, self.query_bias = self._projection("query", d_model, heads_key, *query_key)
        self.key_kernel, self.key_bias = self._projection("key", d_memory, heads_key, *query_key)
        self.value_kernel, self.value_bias = self._projection("value", d_memory, heads_value, gain=self.gain)
        self.output_kernel, self.output_bias = self._projection("output", heads_value, d_model)
        self.score_vector = None
        if self.score == "additive":
            self.score_vector = self.add_weight(shape=(self.num_heads, self.head_widths[0]), name="score_vector")

    def call(
        self,
        query: Tensor,
        memory: Tensor | KeysAndValues,
        attention_mask: Tensor | None = None,
        seed: Tensor | None = None,
        past: KeysAndValues | None = None,
    ) -> Any:
        if query is memory:
            queries, *projected = self._project(query, "query", "key", "value")
            pair = KeysAndValues(*projected)
        else:
            (queries,) = self._project(query, "query")
            pair = memory if isinstance(memory, KeysAndValues) else self.keys_and_values(memory)
        keys, values = pair = pair if past is None else past.followed_by(pair)
        attention_mask = self._prepare_mask(queries, keys, attention_mask)
        is_step = past is not None or isinstance(memory, KeysAndValues)
        attend = functools.partial(
            self.attend, dropout=lambda weights: self.dropout(weights, seed=seed), is_step=is_step
        )
        collector = AttentionWeights.innermost()
        if self.window is not None and collector is None and not is_step:
            self._check_window(queries, keys, attention_mask)
            heads = window_attention(queries, keys, values, attention_mask, window=self.window, attend=attend)
        else:
            if self.window is not None and not is_step:
                local_mask = window_mask(ops.shape(query)[1], self.window)
                attention_mask = local_mask if attention_mask is None else ops.logical_and(attention_mask, local_mask)
            heads, weights = attend(queries, keys, values, attention_mask)
            if collector is not None:
                collector.weights.append(weights)  # [batch, heads, query_len, key_len]
        outputs = self._concatenate(heads)
        return outputs if past is None else (outputs, pair)

    def keys_and_values(self, memory: Tensor) -> KeysAndValues:
        """Projects a memory, float [batch, key_len, d_memory], so that several calls can reuse it."""
        return KeysAndValues(*self._project(memory, "key", "value"))

    def empty_keys_and_values(self, batch: Tensor | int) -> KeysAndValues:
        """Keys and values of zero positions."""
        shapes = ((batch, self.num_heads, 0, width) for width in self.head_widths)
        return KeysAndValues(*(ops.zeros(shape, self.compute_dtype) for shape in shapes))

    def attend(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None,
        *,
        dropout: Callable[[Tensor], Tensor],
        is_step: bool,
    ) -> tuple[Tensor, Tensor]:
        """Computes attention with the layer's score; a subclass may override it.

        Arguments and results are as in `scaled_dot_product_attention`. `is_step` says whether the memory was passed as
        `KeysAndValues`. In a search step the queries are the hypotheses of a beam, and self-attention has one key
        for each hypothesis at each position.
        """
        if self.score == "scaled_dot":
            return scaled_dot_product_attention(queries, keys, values, mask, dropout=dropout)
        if self.score == "dot":
            return dot_product_attention(queries, keys, values, mask, dropout=dropout)
        blocks = [1] * (len(queries.shape) - 4)  # the axis of `window_attention`
        vector = ops.reshape(self.score_vector, (self.num_heads, *blocks, self.head_widths[0]))
        return additive_attention(queries, keys, values, mask, vector=vector, dropout=dropout)

    def _concatenate(self, heads: Tensor) -> Tensor:
        """Concat(head_1, ..., head_h) W^O: float [batch, heads, length, d_value] --> [batch, length, d_model]."""
        return kernels.linear(kernels.merge_heads(heads), self.output_kernel, self.output_bias)

    def _prepare_mask(self, queries: Tensor, keys: Tensor, mask: Tensor | None) -> Tensor | None:
        """Returns the mask with an axis for the heads; raises a ValueError if it does not fit the scores."""
        mask = with_heads(mask)
        if mask is not None:
            full_shape = (*queries.shape[:3], keys.shape[2])
            sizes = zip(reversed(tuple(mask.shape)), reversed(full_shape), strict=False)
            if len(mask.shape) > 4 or any(size not in (None, 1, limit) and limit is not None for size, limit in sizes):
                raise ValueError(
                    f"`attention_mask` must be broadcastable to [batch, heads, query_len, key_len], here {full_shape}, "
                    f"got the shape {tuple(mask.shape)}; `padding_mask` computes one from token ids"
                )
        return mask

    def _check_window(self, queries: Tensor, keys: Tensor, attention_mask: Tensor | None) -> None:
        """Raises a ValueError for a mask or for lengths that a window does not support."""
        if attention_mask is not None and len(attention_mask.shape) > 1 and attention_mask.shape[-2] != 1:
            raise ValueError(
                "with `window`, `attention_mask` must be the same for all queries, [batch, heads, 1, key_len] or "
                f"broadcastable to it; got the shape {tuple(attention_mask.shape)}"
            )
        lengths = queries.shape[2], keys.shape[2]
        if None not in lengths and lengths[0] != lengths[1]:
            raise ValueError(f"`window` is for self-attention; got lengths {lengths[0]} and {lengths[1]}")

    def _project(self, x: Tensor, *names: str) -> list[Tensor]:
        """Projects [batch, length, width] to the named queries, keys or values: [batch, heads, length, d_head] each.

        Kernels of equal width are joined for a single product. If they must be joined at each call, this is done only
        for small ones.
        """
        projections = [getattr(self, f"{name}_kernel") for name in names]
        if len(x.shape) != 3 or x.shape[-1] != projections[0].shape[0]:
            argument = "query" if "query" in names else "memory"
            shape = f"[batch, length, {projections[0].shape[0]}]"
            raise ValueError(f"`{argument}` must be {shape}, as in `build`, got the shape {tuple(x.shape)}")
        elements = sum(kernel.shape[0] * kernel.shape[1] for kernel in projections)
        is_copied = ReadyWeights.innermost() is None  # anew at each call
        has_equal_widths = len({kernel.shape[1] for kernel in projections}) == 1
        if len(names) > 1 and (not has_equal_widths or (is_copied and elements > MOST_JOINED)):
            return [part for name in names for part in self._project(x, name)]
        kernel, bias = projections[0], getattr(self, f"{names[0]}_bias")
        if len(names) > 1:
            dtype = product_dtype(x, kernel)
            kernel, bias = made_ready(f"{self.path}.{'_'.join(names)}.{dtype}", lambda: self._join(names, dtype))
        heads = kernels.split_heads(kernels.linear(x, kernel, bias), len(names) * self.num_heads)
        return ops.split(heads, len(names), axis=1) if len(names) > 1 else [heads]

    def _join(self, names: tuple[str, ...], dtype: str) -> tuple[Tensor, Tensor | None]:
        """Concatenates the kernels, cast to a dtype, and the biases of several projections."""
        kernel = ops.concatenate([ops.cast(getattr(self, f"{name}_kernel"), dtype) for name in names], axis=1)
        if not self.use_bias:
            return kernel, None
        biases = [ops.cast(getattr(self, f"{name}_bias"), self.compute_dtype) for name in names]
        return kernel, ops.concatenate(biases, axis=0)

    def _projection(
        self, name: str, d_in: int, d_out: int, initializer: Any = "glorot_uniform", gain: float = 1.0
    ) -> tuple[Any, Any]:
        if isinstance(initializer, keras.initializers.Initializer):
            initializer = initializer.clone()  # if shared, two kernels would be equal
        if gain != 1:
            initializer = functools.partial(_scaled_values, keras.initializers.get(initializer), gain)
        kernel = self.add_weight(shape=(d_in, d_out), initializer=initializer, name=f"{name}_kernel")
        bias = self.add_weight(shape=(d_out,), initializer="zeros", name=f"{name}_bias") if self.use_bias else None
        return kernel, bias


def _scaled_values(initializer: Callable[..., Tensor], gain: float, shape: tuple, dtype: Any = None) -> Tensor:
    """Returns the values of an initializer, multiplied by `gain`."""
    return gain * initializer(shape, dtype=dtype)


def _is_window(window: Any) -> bool:
    """Returns whether `window` is a pair of integers, each at least 0."""
    is_pair = isinstance(window, tuple | list) and len(window) == 2
    return is_pair and all(isinstance(reach, numbers.Integral) and int(reach) >= 0 for reach in window)

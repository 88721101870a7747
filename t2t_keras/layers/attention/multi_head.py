"""Multi-head attention (Figure 2)."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from t2t_keras import kernels
from t2t_keras.config.layer_settings import AttentionScore
from t2t_keras.kernels.contexts import WeightCache, compute_once
from t2t_keras.kernels.plain import product_dtype
from t2t_keras.layers.attention.masks import (
    add_heads_axis,
    causal_past_mask,
    check_window,
    combine_masks,
    window_mask,
)
from t2t_keras.layers.attention.scores import (
    additive_attention,
    dot_product_attention,
    scaled_dot_product_attention,
)
from t2t_keras.layers.attention.window import window_attention
from t2t_keras.layers.collectors import AttentionWeights
from t2t_keras.layers.dropout import Dropout
from t2t_keras.layers.layer import input_spec_of
from t2t_keras.layers.trainable_parts import part_arguments
from t2t_keras.layers.weight_options import WeightedLayer, copy_initializer, weight_option
from t2t_keras.tensor import Tensor
from t2t_keras.values import PositiveFloat, PositiveInt, Rate, check_arguments

# Maximum number of elements of the kernels that are fused in each call: copying more costs more than it saves.
MAX_FUSED = 2**18


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

    def extended_spec(self, count: int | None, dtype: str) -> "KeysAndValues":
        """The shapes and the dtype after `followed_by` with `count` positions, as `KerasTensor`; None means unknown."""
        lengths = [None if None in (each.shape[2], count) else each.shape[2] + count for each in self]
        shapes = [(*each.shape[:2], length, each.shape[3]) for each, length in zip(self, lengths, strict=True)]
        return KeysAndValues(*(keras.KerasTensor(shape, dtype) for shape in shapes))


@keras.saving.register_keras_serializable(package="t2t_keras")
class MultiHeadAttention(WeightedLayer):
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
        query_key_initializer: Keras initializer of the query and key kernels, or its name; None means
            `kernel_initializer`. With "lecun_uniform", queries and keys initially have unit variance, as section 3.2.1
            assumes. With Glorot initializers, their variance falls as their width grows.
        gain: factor on the initial query, key and value kernels. fairseq uses 1 / sqrt(2).
        kwargs: the options of the kernels and biases, such as `kernel_regularizer`, as in `WeightedLayer`; and the
            arguments of `keras.layers.Layer`.

    Call arguments:
        query: float [batch, query_len, d_model].
        memory: float [batch, key_len, d_memory]; or its projection by `keys_and_values`; a window is then ignored.
        attention_mask: bool, broadcastable to [batch, heads, query_len, key_len], True = may attend; a mask with three
            axes is [batch, query_len, key_len], and one with two axes [query_len, key_len]. With a window, it must be
            the same for all queries, as `padding_mask` is: its query_len axis must have length 1.
        seed: int32 [2], for dropout; None draws a seed.
        past: in self-attention, the keys and values of earlier positions; a window and `memory_mask` are then ignored.
        memory_mask: bool [batch, key_len], True = may be attended to (a padding mask); by default the Keras mask of
            `memory`. It applies in addition to `attention_mask`. The Keras mask of `query` is only passed on.
        use_causal_mask: whether to hide later positions too; the first query then has the position of the first key
            after `past`.
        return_attention_scores: whether to return the attention weights too. A layer with a window then computes
            weights for all positions, 0 outside the window.

    Returns:
        float [batch, query_len, d_model]. A tuple of that and, if `past` is given, the past extended by these positions
        and, if `return_attention_scores`, the weights before dropout, float [batch, heads, query_len, key_len].

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
        query_key_initializer: str | keras.initializers.Initializer | None = None,
        gain: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_arguments(PositiveInt, num_heads=num_heads)
        check_arguments(PositiveInt | None, d_key=d_key, d_value=d_value)
        check_arguments(Rate, dropout_rate=dropout_rate)
        check_arguments(PositiveFloat, gain=gain)
        check_arguments(bool, use_bias=use_bias)
        check_arguments(AttentionScore, score=score)
        if window is not None:
            check_window(window)
        self.num_heads = num_heads
        self.d_key = d_key
        self.d_value = d_value
        self.dropout_rate = dropout_rate
        self.use_bias = use_bias
        self.score = score
        self.window = None if window is None else (window[0], window[1])
        self.query_key_initializer = weight_option("query_key_initializer", query_key_initializer)
        self.gain = gain
        self.dropout = Dropout(dropout_rate, name="dropout", **part_arguments(self))

    def build(self, query_shape: tuple, memory_shape: tuple) -> None:
        self.input_spec = input_spec_of(3, query_shape, name="query")
        input_spec_of(3, memory_shape, name="memory")
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
        memory_mask: Tensor | None = None,
        use_causal_mask: bool = False,
        return_attention_scores: bool = False,
    ) -> Any:
        queries, pair = self._queries_and_memory(query, memory)
        if past is not None:
            check_batches(queries, past, "query", "past")
            pair = past.followed_by(pair)
        mask = self._prepare_mask(queries, pair.keys, attention_mask)
        if past is None and not isinstance(memory_mask, tuple | list | None):  # not the empty masks of `KeysAndValues`
            mask = combine_masks(mask, ops.expand_dims(memory_mask, (1, 2)))
        is_step = past is not None or isinstance(memory, KeysAndValues)
        attend = functools.partial(
            self.attend, dropout=lambda weights: self.dropout(weights, seed=seed), is_step=is_step
        )
        window, collector = None if is_step else self.window, AttentionWeights.innermost()
        if window is None:
            if use_causal_mask:
                query_len, key_len = (kernels.shape(x)[2] for x in (queries, pair.keys))
                past_len = 0 if past is None else kernels.shape(past.keys)[2]
                mask = combine_masks(mask, causal_past_mask(query_len, key_len, past_len))
            heads, weights = attend(queries, *pair, mask)
        else:
            window = (window[0], 0) if use_causal_mask else window
            with_weights = return_attention_scores or collector is not None
            heads, weights = self._attend_window(queries, pair, mask, window, with_weights, attend)
        if collector is not None:
            collector.weights.append(weights)  # [batch, heads, query_len, key_len]
        outputs = self._concatenate(heads)
        results = (outputs, *([] if past is None else [pair]), *([weights] if return_attention_scores else []))
        return results if len(results) > 1 else outputs

    def compute_output_spec(self, query: Any, memory: Any, *args: Any, **kwargs: Any) -> Any:
        results = [super().compute_output_spec(query, memory, *args, **kwargs)]
        arguments = inspect.signature(self.call).bind_partial(query, memory, *args, **kwargs).arguments
        past = arguments.get("past")
        key_len = memory.keys.shape[2] if isinstance(memory, KeysAndValues) else memory.shape[1]
        if past is not None:
            results.append(past.extended_spec(key_len, self.compute_dtype))
            key_len = results[1].keys.shape[2]
        if arguments.get("return_attention_scores"):
            shape = (query.shape[0], self.num_heads, query.shape[1], key_len)
            results.append(keras.KerasTensor(shape, self.compute_dtype))
        return tuple(results) if len(results) > 1 else results[0]

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

        Arguments and results are as in `scaled_dot_product_attention`. `is_step` says whether the call has a `past` or
        a memory that is projected already. In a search step the queries are the hypotheses of a beam, and
        self-attention has one key for each hypothesis at each position.
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
        mask = add_heads_axis(mask)
        if mask is not None:
            full_shape = (*queries.shape[:3], keys.shape[2])
            sizes = zip(reversed(tuple(mask.shape)), reversed(full_shape), strict=False)
            if len(mask.shape) > 4 or any(size not in (None, 1, limit) and limit is not None for size, limit in sizes):
                raise ValueError(
                    f"`attention_mask` must be broadcastable to [batch, heads, query_len, key_len], here {full_shape}, "
                    f"got the shape {tuple(mask.shape)}; `padding_mask` computes one from token ids"
                )
        return mask

    def _attend_window(
        self,
        queries: Tensor,
        pair: KeysAndValues,
        mask: Tensor | None,
        window: tuple[int, int],
        with_weights: bool,
        attend: Callable[..., tuple[Tensor, Tensor]],
    ) -> tuple[Tensor, Tensor | None]:
        """Attends within a window. With `with_weights`, computes the weights for all positions."""
        self._check_window(queries, pair.keys, mask)
        if not with_weights:
            return window_attention(queries, *pair, mask, window=window, attend=attend), None
        return attend(queries, *pair, combine_masks(mask, window_mask(ops.shape(queries)[2], window)))

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

    def _queries_and_memory(self, query: Tensor, memory: Tensor | KeysAndValues) -> tuple[Tensor, KeysAndValues]:
        """Projects the two arguments of `call`; in self-attention, with a single product."""
        if query is memory:
            queries, *projected = self._project(query, "query", "key", "value")
            return queries, KeysAndValues(*projected)
        (queries,) = self._project(query, "query")
        pair = memory if isinstance(memory, KeysAndValues) else self.keys_and_values(memory)
        check_batches(queries, pair, "query", "memory")
        return queries, pair

    def _project(self, x: Tensor, *names: str) -> list[Tensor]:
        """Projects [batch, length, width] to the named queries, keys or values: [batch, heads, length, d_head] each.

        Kernels of equal width are fused for a single product. Without a `WeightCache`, each call has to concatenate
        them anew, which pays only for small kernels.
        """
        projections = [getattr(self, f"{name}_kernel") for name in names]
        if len(x.shape) != 3 or x.shape[-1] != projections[0].shape[0]:
            argument = "query" if "query" in names else "memory"
            shape = f"[batch, length, {projections[0].shape[0]}]"
            raise ValueError(f"`{argument}` must be {shape}, as in `build`, got the shape {tuple(x.shape)}")
        if len(names) == 1:
            outputs = kernels.linear(x, projections[0], getattr(self, f"{names[0]}_bias"))
            return [kernels.split_heads(outputs, self.num_heads)]  # --> [batch, heads, length, d_head]
        elements = sum(kernel.shape[0] * kernel.shape[1] for kernel in projections)
        is_too_large = WeightCache.innermost() is None and elements > MAX_FUSED
        has_equal_widths = len({kernel.shape[1] for kernel in projections}) == 1
        if is_too_large or not has_equal_widths:
            return [part for name in names for part in self._project(x, name)]
        dtype = product_dtype(x, projections[0])
        kernel, bias = compute_once(f"{self.path}.{'_'.join(names)}.{dtype}", lambda: self._fuse(names, dtype))
        outputs = kernels.linear(x, kernel, bias)  # --> [batch, length, names * heads * d_head]
        heads = kernels.split_heads(outputs, len(names) * self.num_heads)
        return ops.split(heads, len(names), axis=1)  # --> [batch, heads, length, d_head] each

    def _fuse(self, names: tuple[str, ...], dtype: str) -> tuple[Tensor, Tensor | None]:
        """Concatenates the kernels, cast to a dtype, and the biases of several projections."""
        kernel = ops.concatenate([ops.cast(getattr(self, f"{name}_kernel"), dtype) for name in names], axis=1)
        if not self.use_bias:
            return kernel, None
        biases = [ops.cast(getattr(self, f"{name}_bias"), self.compute_dtype) for name in names]
        return kernel, ops.concatenate(biases, axis=0)

    def _projection(
        self, name: str, d_in: int, d_out: int, initializer: Any = None, gain: float = 1.0
    ) -> tuple[Any, Any]:
        """Adds the kernel of a projection and, if the layer has biases, its bias; otherwise the bias is None."""
        initializer = copy_initializer(initializer)
        if gain != 1:
            base = copy_initializer(self.kernel_initializer) if initializer is None else initializer
            initializer = functools.partial(_scaled_values, keras.initializers.get(base), gain)
        kernel = self.add_kernel(f"{name}_kernel", (d_in, d_out), initializer)
        return kernel, self.add_bias(f"{name}_bias", (d_out,)) if self.use_bias else None


def _scaled_values(initializer: Callable[..., Tensor], gain: float, shape: tuple, dtype: Any = None) -> Tensor:
    """Returns the values of an initializer, multiplied by `gain`."""
    return gain * initializer(shape, dtype=dtype)


def check_batches(queries: Tensor, memory: KeysAndValues, name: str, memory_name: str) -> None:
    """Raises a ValueError if two arguments have different batch sizes; NumPy's rules would repeat a batch of 1."""
    sizes = queries.shape[0], memory.keys.shape[0]
    if None not in sizes and sizes[0] != sizes[1]:
        raise ValueError(f"`{name}` and `{memory_name}` must have the same batch size, got {sizes[0]} and {sizes[1]}")

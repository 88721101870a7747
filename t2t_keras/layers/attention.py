"""Scaled dot-product attention and multi-head attention."""

from typing import Any

import keras
from keras import ops

from t2t_keras.layers import kernels
from t2t_keras.layers.dropout import Dropout

Tensor = Any

# Most elements of kernels put side by side for one wider product: larger copies cost more than the product saves.
_MOST_JOINED = 2**18


def scaled_dot_product_attention(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Attention(Q, K, V) = softmax(Q K^T / sqrt(d_key)) V (section 3.2.1, equation 1).

    Args:
        queries: float [..., query_len, d_key].
        keys: float [..., key_len, d_key].
        values: float [..., key_len, d_value].
        mask: bool, broadcastable to [..., query_len, key_len], True = may attend;
            None lets every query attend to every key.

    Returns:
        A pair: float [..., query_len, d_value], and the weights, float
        [..., query_len, key_len]. A query that may attend to nothing attends to
        everything equally; no NaN comes of it.
    """
    weights = attention_weights(queries, keys, mask)
    return ops.matmul(weights, values), weights  # --> [..., query_len, d_value]


def attention_weights(queries: Tensor, keys: Tensor, mask: Tensor | None = None) -> Tensor:
    """softmax(Q K^T / sqrt(d_key)); arguments and result as in `scaled_dot_product_attention`."""
    queries = queries * ops.cast(keys.shape[-1] ** -0.5, queries.dtype)
    return _weights_of_scaled(queries, keys, mask_bias(mask, queries.dtype))


def mask_bias(mask: Tensor | None, dtype: str) -> Tensor | None:
    """What is added to attention scores to hide keys: one pass over the scores, where selecting would be two.

    Args:
        mask: bool, True = may attend; None hides nothing.
        dtype: of the scores.

    Returns:
        0 where the mask is True and a large negative number elsewhere, of the mask's shape; None for None.
    """
    if mask is None:
        return None
    return ops.cast(ops.where(mask, 0.0, -3e4 if dtype == "float16" else -1e9), dtype)


def _weights_of_scaled(queries: Tensor, keys: Tensor, bias: Tensor | None) -> Tensor:
    """`attention_weights` for queries that were divided by sqrt(d_key) before, with a `mask_bias`."""
    scores = kernels.scores(queries, keys)  # --> [..., query_len, key_len]
    return kernels.softmax(scores if bias is None else scores + bias)


def _heads_first(x: Tensor) -> Tensor:
    """What broadcasts to [batch, heads, ...] as something that broadcasts to [heads, batch, ...]."""
    for _ in range(len(x.shape), 4):
        x = ops.expand_dims(x, 0)
    return ops.swapaxes(x, 0, 1)


@keras.saving.register_keras_serializable(package="t2t_keras")
class MultiHeadAttention(keras.layers.Layer):
    """Attention in several representation subspaces at once (section 3.2.2, Figure 2).

    MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O with
    head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V), where keys and values are of
    the same sequence, the memory. Self-attention is `attention(x, x)`.

    Args:
        num_heads: h.
        d_key: width of a head's queries and keys.
        d_value: width of a head's values; None means d_key.
        dropout_rate: on the attention weights; the paper uses none.
        use_bias: whether the four projections have biases.

    Call arguments:
        query: float [batch, query_len, d_model].
        memory: float [batch, key_len, d_model].
        attention_mask: bool, broadcastable to [batch, heads, query_len, key_len], True = may attend.
        seed: int32 [2], of the dropout.

    Returns:
        float [batch, query_len, d_model].

    Raises:
        ValueError: a `num_heads`, `d_key` or `d_value` below 1.
    """

    def __init__(
        self,
        num_heads: int,
        d_key: int,
        d_value: int | None = None,
        dropout_rate: float = 0.0,
        use_bias: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        for name, value in (("num_heads", num_heads), ("d_key", d_key), ("d_value", d_value)):
            if value is not None and value < 1:
                raise ValueError(f"`{name}` must be at least 1, got {value}")
        self.num_heads = num_heads
        self.d_key = d_key
        self.d_value = d_value or d_key
        self.dropout_rate = dropout_rate
        self.use_bias = use_bias
        self.dropout = Dropout(dropout_rate, name="dropout", dtype=self.dtype_policy)

    def build(self, query_shape: tuple, memory_shape: tuple | None = None) -> None:
        d_model = query_shape[-1]
        d_memory = (memory_shape or query_shape)[-1]
        heads_key, heads_value = self.num_heads * self.d_key, self.num_heads * self.d_value
        self.query_kernel, self.query_bias = self._projection("query", d_model, heads_key)
        self.key_kernel, self.key_bias = self._projection("key", d_memory, heads_key)
        self.value_kernel, self.value_bias = self._projection("value", d_memory, heads_value)
        self.output_kernel, self.output_bias = self._projection("output", heads_value, d_model)

    def call(
        self,
        query: Tensor,
        memory: Tensor,
        attention_mask: Tensor | None = None,
        seed: Tensor | None = None,
    ) -> Tensor:
        queries, keys, values = self._project(query, memory)  # --> [heads, batch, length, d_head] each
        weights = self._heads_first_weights(queries, keys, attention_mask)  # --> [heads, batch, query_len, key_len]
        heads = ops.matmul(self.dropout(weights, seed=seed), values)  # --> [heads, batch, query_len, d_value]
        heads = ops.reshape(heads, (self.num_heads, -1, self.d_value))  # --> [heads, batch * query_len, d_value]
        concatenated = ops.reshape(ops.transpose(heads, (1, 0, 2)), (-1, self.num_heads * self.d_value))
        outputs = kernels.linear(concatenated, self.output_kernel, self.output_bias)  # --> [batch * query_len, d_model]
        return kernels.reshape_like(outputs, query)  # --> [batch, query_len, d_model]

    def attention_weights(self, query: Tensor, memory: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """What the call weighs the memory's values by, without dropout; for people to look at.

        Args:
            query: float [batch, query_len, d_model].
            memory: float [batch, key_len, d_model].
            attention_mask: as in the call.

        Returns:
            float [batch, heads, query_len, key_len]; each query's add up to 1.
        """
        (queries,) = self._heads(query, self._query_projection())  # --> [heads, batch, query_len, d_key]
        (keys,) = self._heads(memory, (self.key_kernel, self.key_bias, self.d_key))
        return ops.swapaxes(self._heads_first_weights(queries, keys, attention_mask), 0, 1)

    def _heads_first_weights(self, queries: Tensor, keys: Tensor, attention_mask: Tensor | None) -> Tensor:
        """[heads, batch, query_len, key_len], from scaled queries and keys of `_heads` and a mask of the call."""
        bias = mask_bias(attention_mask, queries.dtype)
        return _weights_of_scaled(queries, keys, None if bias is None else _heads_first(bias))

    def project_memory(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """The keys and values of a sequence, which a decoder computes once a sentence.

        Args:
            memory: float [batch, key_len, d_model].

        Returns:
            Keys, float [batch, heads, key_len, d_key], and values, float [batch, heads, key_len, d_value].
        """
        keys = kernels.linear(memory, self.key_kernel, self.key_bias)
        values = kernels.linear(memory, self.value_kernel, self.value_bias)
        return self._split_heads(keys, self.d_key), self._split_heads(values, self.d_value)

    def step_projections(self, dtype: str) -> dict[str, Tensor | None]:
        """The projections as the steps of a search take them, to be made once a search.

        Args:
            dtype: of the kernels; bfloat16 lets products be computed in it.

        Returns:
            "query_kernel", [d_model, heads * d_key], divided by sqrt(d_key); "joined_kernel",
            [d_model, heads * (2 d_key + d_value)], that and those of keys and values side by side;
            "query_bias" and "joined_bias" likewise, without d_model, or None; and "output_kernel",
            [heads * d_value, d_model].
        """
        query_kernel, query_bias, _ = self._query_projection()
        joined_kernel = ops.concatenate([query_kernel, self.key_kernel, self.value_kernel], axis=1)
        biases = [query_bias, self.key_bias, self.value_bias]
        joined_bias = ops.concatenate(biases, axis=0) if self.use_bias else None
        return {
            "query_kernel": ops.cast(query_kernel, dtype),
            "query_bias": query_bias,
            "joined_kernel": ops.cast(joined_kernel, dtype),
            "joined_bias": joined_bias,
            "output_kernel": ops.cast(self.output_kernel, dtype),
        }

    def step(
        self,
        query: Tensor,
        past: dict[str, Tensor],
        bias: Tensor | None,
        projections: dict[str, Tensor | None],
        beam_size: int,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Self-attention of one more position of every hypothesis.

        The hypotheses of a sentence take the place of the query length: all attend
        to one store of keys and values, and the bias says which are their own.

        Args:
            query: float [batch * beam, d_model].
            past: "keys" and "values", float [batch, heads, past_len, d_head].
            bias: a `mask_bias`, broadcastable to [batch, heads, beam, past_len + beam], or None.
            projections: of `step_projections`.
            beam_size: hypotheses a sentence.

        Returns:
            float [batch * beam, d_model], and `past` with this position's `beam` entries at the end.
        """
        queries, keys, values = self._step_heads(query, projections, beam_size)
        keys = ops.concatenate([past["keys"], keys], axis=2)  # --> [batch, heads, past_len + beam, d_key]
        values = ops.concatenate([past["values"], values], axis=2)
        attended = self._attended(queries, keys, values, bias, projections["output_kernel"])
        return attended, {"keys": keys, "values": values}

    def step_beside(
        self,
        query: Tensor,
        past: dict[str, Tensor],
        bias: Tensor,
        projections: dict[str, Tensor | None],
        beam_size: int,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """`step` for a past that is kept elsewhere: what is new is not joined to it, and attended to beside it.

        Args:
            query: float [batch * beam, d_model].
            past: "keys" and "values", float [batch, heads, room, d_head], of which only a part need be filled.
            bias: a `mask_bias`, broadcastable to [batch, heads, beam, room], that hides what is not filled.
            projections: of `step_projections`.
            beam_size: hypotheses a sentence.

        Returns:
            float [batch * beam, d_model], and this position's keys and values, [batch, heads, beam, d_head].
        """
        queries, keys, values = self._step_heads(query, projections, beam_size)
        past_scores = ops.matmul(queries, ops.swapaxes(past["keys"], 2, 3)) + bias  # --> [batch, heads, beam, room]
        own_scores = ops.sum(queries * keys, axis=-1, keepdims=True)  # --> [batch, heads, beam, 1]
        weights = kernels.softmax(ops.concatenate([past_scores, own_scores], axis=-1))
        heads = ops.matmul(weights[..., :-1], past["values"]) + weights[..., -1:] * values
        attended = self._joined_heads(heads, projections["output_kernel"])
        return attended, {"keys": keys, "values": values}

    def step_to_memory(
        self,
        query: Tensor,
        memory: dict[str, Tensor],
        bias: Tensor | None,
        projections: dict[str, Tensor | None],
        beam_size: int,
    ) -> Tensor:
        """Attention of one position of every hypothesis to the memory.

        Args:
            query: float [batch * beam, d_model].
            memory: "keys" and "values", float [batch, heads, source_len, d_head], of `project_memory`.
            bias: a `mask_bias`, broadcastable to [batch, heads, beam, source_len], or None.
            projections: of `step_projections`.
            beam_size: hypotheses a sentence.

        Returns:
            float [batch * beam, d_model].
        """
        queries = self._step_queries(query, projections, beam_size)
        return self._attended(queries, memory["keys"], memory["values"], bias, projections["output_kernel"])

    def step_weights(
        self,
        query: Tensor,
        memory: dict[str, Tensor],
        bias: Tensor | None,
        projections: dict[str, Tensor | None],
        beam_size: int,
    ) -> Tensor:
        """The attention weights of `step_to_memory`; the arguments are the same.

        Returns:
            float [batch, heads, beam, source_len].
        """
        return _weights_of_scaled(self._step_queries(query, projections, beam_size), memory["keys"], bias)

    def _step_heads(self, query: Tensor, projections: dict[str, Tensor | None], beam_size: int) -> list[Tensor]:
        """Scaled queries, keys and values of one more position, [batch, heads, beam, d_head] each."""
        projected = kernels.linear(query, projections["joined_kernel"], projections["joined_bias"])
        if self.d_key == self.d_value:
            heads = self._beam_heads(projected, 3 * self.num_heads, self.d_key, beam_size)
            return ops.split(heads, 3, axis=1)  # --> [batch, heads, beam, d_head] each
        ends = [self.num_heads * self.d_key, self.num_heads * self.d_key * 2]
        widths = (self.d_key, self.d_key, self.d_value)
        parts = zip(ops.split(projected, ends, axis=-1), widths, strict=True)
        return [self._beam_heads(part, self.num_heads, width, beam_size) for part, width in parts]

    def _step_queries(self, query: Tensor, projections: dict[str, Tensor | None], beam_size: int) -> Tensor:
        """Scaled queries to the memory, [batch, heads, beam, d_key]."""
        queries = kernels.linear(query, projections["query_kernel"], projections["query_bias"])
        return self._beam_heads(queries, self.num_heads, self.d_key, beam_size)

    def _beam_heads(self, x: Tensor, num_heads: int, d_head: int, beam_size: int) -> Tensor:
        """[batch * beam, heads * d_head] --> [batch, heads, beam, d_head]."""
        if beam_size == 1:
            return ops.reshape(x, (-1, num_heads, 1, d_head))
        return ops.transpose(ops.reshape(x, (-1, beam_size, num_heads, d_head)), (0, 2, 1, 3))

    def _attended(
        self, queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, output_kernel: Tensor
    ) -> Tensor:
        """From scaled queries [batch, heads, beam, d_key] to [batch * beam, d_model]."""
        heads = ops.matmul(_weights_of_scaled(queries, keys, bias), values)  # --> [batch, heads, beam, d_value]
        return self._joined_heads(heads, output_kernel)

    def _joined_heads(self, heads: Tensor, output_kernel: Tensor) -> Tensor:
        """From [batch, heads, beam, d_value] to [batch * beam, d_model]."""
        if heads.shape[2] != 1:
            heads = ops.transpose(heads, (0, 2, 1, 3))  # --> [batch, beam, heads, d_value]
        rows = ops.reshape(heads, (-1, self.num_heads * self.d_value))
        return kernels.linear(rows, output_kernel, self.output_bias)

    def _project(self, query: Tensor, memory: Tensor) -> list[Tensor]:
        """Queries divided by sqrt(d_key), keys and values, each float [heads, batch, length, d_head]."""
        key_projection = (self.key_kernel, self.key_bias, self.d_key)
        value_projection = (self.value_kernel, self.value_bias, self.d_value)
        if query is memory:
            return self._heads(query, self._query_projection(), key_projection, value_projection)
        return self._heads(query, self._query_projection()) + self._heads(memory, key_projection, value_projection)

    def _query_projection(self) -> tuple[Tensor, Tensor | None, int]:
        """Kernel and bias that give queries divided by sqrt(d_key): the kernel is smaller than the queries."""
        scale = self.d_key**-0.5
        return self.query_kernel * scale, self.query_bias * scale if self.use_bias else None, self.d_key

    def _heads(self, x: Tensor, *projections: tuple[Tensor, Tensor | None, int]) -> list[Tensor]:
        """Projections of one sequence, in one product where their heads are equally wide and kernels small.

        With the heads as the first axis, one transposition serves all projections
        and taking them apart copies nothing.

        Args:
            x: float [batch, length, d_model].
            *projections: kernel, bias and a head's width, each.

        Returns:
            Of each projection float [heads, batch, length, d_head].
        """
        kernel_parts, bias_parts, widths = zip(*projections, strict=True)
        elements = sum(kernel.shape[0] * kernel.shape[1] for kernel in kernel_parts)
        if len(projections) > 1 and (len(set(widths)) > 1 or elements > _MOST_JOINED):
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

    def _split_heads(self, x: Tensor, d_head: int) -> Tensor:
        """[batch, length, heads * d_head] --> [batch, heads, length, d_head]."""
        batch, length, _ = ops.shape(x)
        return ops.transpose(ops.reshape(x, (batch, length, self.num_heads, d_head)), (0, 2, 1, 3))

    def compute_output_shape(self, query_shape: tuple, memory_shape: tuple | None = None) -> tuple:
        return query_shape

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "d_key": self.d_key,
            "d_value": self.d_value,
            "dropout_rate": self.dropout_rate,
            "use_bias": self.use_bias,
        }

    def _projection(self, name: str, d_in: int, d_out: int) -> tuple[Any, Any]:
        kernel = self.add_weight(shape=(d_in, d_out), initializer="glorot_uniform", name=f"{name}_kernel")
        bias = self.add_weight(shape=(d_out,), initializer="zeros", name=f"{name}_bias") if self.use_bias else None
        return kernel, bias

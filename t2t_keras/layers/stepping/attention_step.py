"""Multi-head attention in one step of a search.

The hypotheses of a sentence take the place of the query length: all attend to one store of keys and values, in which a
bias hides the entries of the others.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from keras import ops

from t2t_keras import kernels
from t2t_keras.layers.attention.multi_head import MOST_JOINED, MultiHeadAttention
from t2t_keras.layers.collectors import made_ready
from t2t_keras.layers.stepping.projections import Projection, Projections, joined
from t2t_keras.tensor import Tensor


class KeysAndValues(NamedTuple):
    """What queries attend to: float keys [batch, heads, key_len, d_key] and values [batch, heads, key_len, d_value]."""

    keys: Tensor
    values: Tensor


class _AttentionStep:
    """The common part of attention to the past and to the memory; `output_kernel` is [heads * d_value, d_model]."""

    def __init__(self, layer: MultiHeadAttention, projections: Projections, beam_size: int) -> None:
        self._projections = projections
        self._layer = layer
        self._beam_size = beam_size
        self._attention = layer.attention_function(0)
        is_papers = type(layer).attention_function is MultiHeadAttention.attention_function  # and not one of a subclass
        if layer.score_vector is None and is_papers:
            self._attention = kernels.attend_from_few
        self.output_kernel, self._output_bias = self._projections.of_outputs(layer.output_kernel, layer.output_bias)

    def _beam_heads(self, x: Tensor, num_heads: int, d_head: int) -> Tensor:
        """[batch * beam, heads * d_head] --> [batch, heads, beam, d_head]."""
        if self._beam_size == 1:
            return ops.reshape(x, (-1, num_heads, 1, d_head))
        rows = ops.reshape(x, (-1, self._beam_size * num_heads, d_head))
        return kernels.take_places(rows, _columns(self._beam_size, num_heads))

    def _joined_heads(self, heads: Tensor) -> Tensor:
        """[batch, heads, beam, d_value] --> [batch * beam, d_model]."""
        num_heads, d_value = self._layer.num_heads, self._layer.d_value
        if self._beam_size > 1:
            rows = ops.reshape(heads, (-1, num_heads * self._beam_size, d_value))
            heads = kernels.take_places(rows, _columns(num_heads, self._beam_size))  # --> [batch, beam, heads, d_value]
        rows = ops.reshape(heads, (-1, num_heads * d_value))
        return kernels.linear(rows, self.output_kernel, self._output_bias)


def _columns(rows: int, columns: int) -> list[range]:
    """The places of each column in a matrix of rows and columns, whose transposition they are."""
    return [range(column, rows * columns, columns) for column in range(columns)]


class SelfAttentionStep(_AttentionStep):
    """Self-attention by a built `MultiHeadAttention` without dropout, its kernels made ready once per search.

    `kernel`, [d_model, heads * (2 d_key + d_value)], and `bias` join those of queries, keys and values. Of a window,
    only the positions before count.
    """

    def __init__(self, layer: MultiHeadAttention, projections: Projections, beam_size: int) -> None:
        super().__init__(layer, projections, beam_size)
        self.kernel, self.bias = joined_heads(layer, self._projections)

    def no_past(self, batch: Tensor | int, dtype: str) -> KeysAndValues:
        """The empty keys and values before the first position."""
        layer = self._layer
        shapes = ((batch, layer.num_heads, 0, width) for width in (layer.d_key, layer.d_value))
        return KeysAndValues(*(ops.zeros(shape, dtype) for shape in shapes))

    def __call__(self, query: Tensor, past: KeysAndValues, bias: Tensor | None) -> tuple[Tensor, KeysAndValues]:
        """Attends from one position, [batch * beam, d_model], to itself and a past, [batch, heads, past_len, d_head].

        `bias` is a `mask_bias`, broadcastable to [batch, heads, beam, past_len + beam]. Returns float [batch * beam,
        d_model], and the past with the `beam` entries of this position appended, without those of positions that a
        window now leaves behind.
        """
        queries, keys, values = self._heads(query)
        keys = ops.concatenate([past.keys, keys], axis=2)  # --> [batch, heads, past_len + beam, d_key]
        values = ops.concatenate([past.values, values], axis=2)
        heads, _ = self._attention(queries, keys, values, bias=bias)
        return self._joined_heads(heads), KeysAndValues(self._within_reach(keys), self._within_reach(values))

    def _within_reach(self, entries: Tensor) -> Tensor:
        """Drops the entries of positions that no later one attends to: [batch, heads, past_len, d_head]."""
        if self._layer.window is None:
            return entries
        count = self._layer.window[0] * self._beam_size
        return entries[:, :, -count:] if count else entries[:, :, :0]

    def beside(self, query: Tensor, past: KeysAndValues, bias: Tensor) -> tuple[Tensor, KeysAndValues]:
        """Like the call, for a past that is stored elsewhere, [batch, heads, room, d_head], and may be filled in part.

        `bias`, broadcastable to [batch, heads, beam, room], hides the unfilled part. Returns float [batch * beam,
        d_model], and this position's keys and values alone, [batch, heads, beam, d_head]. Not for additive scores nor
        windows.
        """
        queries, keys, values = self._heads(query)
        past_scores = ops.matmul(queries, ops.swapaxes(past.keys, 2, 3)) + bias  # --> [batch, heads, beam, room]
        own_scores = ops.sum(queries * keys, axis=-1, keepdims=True)  # --> [batch, heads, beam, 1]
        weights = kernels.softmax(ops.concatenate([past_scores, own_scores], axis=-1))
        heads = ops.matmul(weights[..., :-1], past.values) + weights[..., -1:] * values
        return self._joined_heads(heads), KeysAndValues(keys, values)

    def _heads(self, query: Tensor) -> list[Tensor]:
        """Queries, keys and values of one more position, [batch, heads, beam, d_head] each."""
        layer = self._layer
        projected = kernels.linear(query, self.kernel, self.bias)
        if layer.d_key == layer.d_value:
            heads = self._beam_heads(projected, 3 * layer.num_heads, layer.d_key)
            return ops.split(heads, 3, axis=1)  # --> [batch, heads, beam, d_head] each
        ends = [layer.num_heads * layer.d_key, layer.num_heads * layer.d_key * 2]
        widths = (layer.d_key, layer.d_key, layer.d_value)
        parts = zip(ops.split(projected, ends, axis=-1), widths, strict=True)
        return [self._beam_heads(part, layer.num_heads, width) for part, width in parts]


def joined_heads(layer: MultiHeadAttention, projections: Projections) -> Projection:
    """The projection to queries, keys and values: kernel [d_model, heads * (2 d_key + d_value)]."""

    def make() -> Projection:
        query_kernel, query_bias, _ = layer.query_projection()
        others = Projection(layer.key_kernel, layer.key_bias), Projection(layer.value_kernel, layer.value_bias)
        return joined(Projection(query_kernel, query_bias), *others)

    return projections.made_of_inputs(f"{layer.query_kernel.path}.joined", make)


class CrossAttentionStep(_AttentionStep):
    """Attention to the memory by a built `MultiHeadAttention` without dropout; kernels are made ready once a search."""

    def __init__(self, layer: MultiHeadAttention, projections: Projections, beam_size: int) -> None:
        super().__init__(layer, projections, beam_size)
        self._query = self._projections.made_of_inputs(
            layer.query_kernel.path, lambda: Projection(*layer.query_projection()[:2])
        )

    def __call__(self, query: Tensor, memory: KeysAndValues, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        """Attends from one position, float [batch * beam, d_model], to the memory's `projected_memories`.

        `bias` is a `mask_bias`, broadcastable to [batch, heads, beam, source_len]. Returns float [batch * beam,
        d_model], and the weights, float [batch, heads, beam, source_len].
        """
        return self._attended(query, memory, bias, self._attention)

    def beside(self, query: Tensor, memory: KeysAndValues, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        """Like the call, by operations that other runtimes have too."""
        return self._attended(query, memory, bias, self._layer.attention_function(0))

    def _attended(
        self, query: Tensor, memory: KeysAndValues, bias: Tensor | None, attention: Callable[..., tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, Tensor]:
        queries = kernels.linear(query, *self._query)
        queries = self._beam_heads(queries, self._layer.num_heads, self._layer.d_key)  # --> [batch, heads, beam, d_key]
        heads, weights = attention(queries, *memory, bias=bias)
        return self._joined_heads(heads), weights

    @property
    def memory_projections(self) -> tuple[Projection, Projection]:
        """Those to keys and to values."""
        layer = self._layer
        return Projection(layer.key_kernel, layer.key_bias), Projection(layer.value_kernel, layer.value_bias)

    @property
    def widths(self) -> tuple[int, int]:
        """Those of a head: d_key and d_value."""
        return self._layer.d_key, self._layer.d_value


def projected_memories(layers: Sequence[CrossAttentionStep], memory: Tensor) -> tuple[KeysAndValues, ...]:
    """The keys and values of a memory, float [batch, key_len, d_model], for each of some layers of the same widths.

    Small kernels of equal head width share one product and one transposition.
    """
    d_key, d_value = layers[0].widths
    projections = [projection for layer in layers for projection in layer.memory_projections]
    elements = sum(kernel.shape[0] * kernel.shape[1] for kernel, _ in projections)
    if d_key != d_value or elements > MOST_JOINED:
        keys_and_values = [
            _heads_first(kernels.linear(memory, *projection), width)
            for projection, width in zip(projections, [d_key, d_value] * len(layers), strict=True)
        ]
    else:
        name = f"{projections[0].kernel.path}.joined{len(projections)}"
        kernel, bias = made_ready(name, lambda: joined(*projections))
        keys_and_values = ops.split(_heads_first(kernels.linear(memory, kernel, bias), d_key), len(projections), axis=1)
    return tuple(map(KeysAndValues, keys_and_values[::2], keys_and_values[1::2]))


def _heads_first(x: Tensor, d_head: int) -> Tensor:
    """[batch, length, heads * d_head] --> [batch, heads, length, d_head]."""
    batch, length, width = kernels.shape(x)
    return transposed(x, batch, length, width // d_head, d_head)


def transposed(x: Tensor, batch: Tensor | int, rows: Tensor | int, columns: Tensor | int, width: int) -> Tensor:
    """[batch, rows, columns, width], whatever its shape --> [batch, columns, rows, width].

    By copies of `width` numbers each: oneDNN's transposition wakes all threads, which takes longer for a few sentences.
    """
    flat = ops.reshape(x, (batch, rows * columns, width))
    column, row = (ops.arange(count, dtype="int32") for count in (columns, rows))
    return kernels.take_places(flat, column[:, None] + row[None] * columns)

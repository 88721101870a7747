"""Self-attention restricted to a window around each position (section 4), at a cost of O(window * length).

The sequence is divided into blocks. The queries of a block attend to the positions of the block and to those positions
of the neighbouring blocks that the window reaches. A mask hides the positions outside each query's window.
"""

from collections.abc import Callable

from keras import ops

from t2t_keras import kernels
from t2t_keras.config.layer_settings import WINDOW_BLOCK as BLOCK
from t2t_keras.kernels.blocks import Length, ceil_div, larger, merge_blocks, smaller, split_blocks
from t2t_keras.tensor import Tensor


def window_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    *,
    window: tuple[int, int],
    attend: Callable[..., tuple[Tensor, Tensor]],
) -> Tensor:
    """Self-attention of all heads within a window.

    Args:
        queries: float [batch, heads, length, d_key].
        keys: float [batch, heads, length, d_key].
        values: float [batch, heads, length, d_value].
        mask: bool, broadcastable to [batch, heads, 1, length], True = may be attended to; None hides nothing.
        window: number of positions before and after its own that a query may attend to.
        attend: computes attention from queries, keys, values and mask in blocks, [batch, heads, blocks, ..., d_head].

    Returns:
        float [batch, heads, length, d_value], equal to attention to all positions with a `window_mask`. The result
        differs only for queries whose window is fully masked.
    """
    length = kernels.shape(queries)[2]
    count = larger(ceil_div(length, max(2 * max(window), BLOCK)), 1)
    size = ceil_div(length, count)  # at least the window's reach, so that one neighbour suffices
    before, after = (smaller(reach, (count - 1) * size) for reach in window)  # a single block has no neighbours

    def surroundings(x: Tensor) -> Tensor:
        """The positions in reach of each block: [..., length, width] --> [..., blocks, key_len, width]."""
        return _add_neighbours(split_blocks(x, count, size), before, after)

    is_visible = ops.ones((1, 1, 1, kernels.shape(keys)[2]), "bool")
    if mask is not None:
        is_visible = ops.logical_and(is_visible, mask)
    is_visible = ops.swapaxes(surroundings(ops.swapaxes(is_visible, 2, 3)), 3, 4)  # --> [..., blocks, 1, key_len]
    places, query_places = ops.arange(before + size + after, dtype="int32") - before, ops.arange(size, dtype="int32")
    distance = places - query_places[:, None]  # --> [size, key_len]
    mask = is_visible & (distance >= -window[0]) & (distance <= window[1])  # --> [..., blocks, size, key_len]
    queries = split_blocks(queries, count, size)  # --> [batch, heads, blocks, size, d_key]
    heads, _ = attend(queries, surroundings(keys), surroundings(values), mask)
    return merge_blocks(heads, length)  # --> [batch, heads, length, d_value]


def _add_neighbours(blocks: Tensor, before: Length, after: Length) -> Tensor:
    """Extends each block by the end of the previous block and the beginning of the next one.

    [..., blocks, size, width] --> [..., blocks, before + size + after, width], with zeros where there is no neighbour.
    """
    size, no_padding = kernels.shape(blocks)[-2], [(0, 0)]
    axes = no_padding * (len(blocks.shape) - 3)
    ends, beginnings = blocks[..., :-1, size - before :, :], blocks[..., 1:, :after, :]
    ends = ops.pad(ends, [*axes, (1, 0), *no_padding, *no_padding])
    beginnings = ops.pad(beginnings, [*axes, (0, 1), *no_padding, *no_padding])
    return ops.concatenate([ends, blocks, beginnings], axis=-2)

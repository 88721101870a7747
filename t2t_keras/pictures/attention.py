"""Draws attention weights: heat maps of layers and heads, and the paper's lines between words (Figures 3 to 5)."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from t2t_keras.pictures.colors import color
from t2t_keras.text.pieces import readable

Segment = tuple[tuple[float, float], tuple[float, float]]

MAX_TOKENS = 80  # maximum number of tokens shown per side; longer sides are truncated

_POINTS = 72  # points per inch
_MAX_INCHES = 16.0  # maximum width and height of all panels together
_PANEL, _CELL = 2.6, 0.3  # maximum size of one of several panels, and of a cell in a single large panel, in inches
_LARGEST_FONT, _SMALLEST_FONT = 9.0, 3.5  # in points; smaller labels are omitted
_COLUMN_GAP, _ROW_GAP = 0.12, 0.25  # horizontal and vertical gaps between panels, in inches
_COLORS = "Blues"

_ROW, _LINES_ACROSS = 0.22, 2.4  # distances between tokens, and between the two columns, in inches
_SHARE_OF_ROW = 0.6  # fraction of a row's height over which the heads' lines are spread
_FAINTEST = 0.01  # minimum weight; lines with smaller weights would be invisible


def draw_heat_maps(
    weights: np.ndarray,
    queries: Sequence[str],
    keys: Sequence[str],
    *,
    row_names: Sequence[str] | None = None,
    column_names: Sequence[str] | None = None,
    title: str = "",
) -> Figure:
    """Draws a heat map for each layer and head, white for weight 0 and dark blue for 1.

    Args:
        weights: float [layers, heads, query_len, key_len].
        queries: the tokens of the rows, as subword pieces.
        keys: the tokens of the columns, as subword pieces.
        row_names: names of the layers; the default is "layer 1", "layer 2", ...
        column_names: names of the heads; the default is "head 1", "head 2", ...
        title: title of the figure. If tokens are truncated, a note is appended.

    Raises:
        ValueError: the weights are empty, or their shape does not match the tokens.
    """
    weights, queries, keys, title = _prepare(weights, queries, keys, title)
    num_layers, num_heads, num_queries, num_keys = weights.shape
    side = _PANEL if num_layers * num_heads > 1 else max(_CELL * max(num_queries, num_keys), _PANEL)
    cell = min(side, _MAX_INCHES / max(num_layers, num_heads)) / max(num_queries, num_keys)
    font = min(_LARGEST_FONT, 0.8 * _POINTS * cell)
    labels = (queries, keys) if font >= _SMALLEST_FONT else ([], [])
    row_names = row_names or _number_names("layer", num_layers)
    column_names = column_names or _number_names("head", num_heads)
    grid = _Grid(
        (num_layers, num_heads), (num_queries * cell, num_keys * cell), [_width(side, font) for side in labels]
    )
    figure = Figure(figsize=grid.size())
    for row, column in np.ndindex(num_layers, num_heads):
        axes = figure.add_axes(grid.panel(row, column))
        image = axes.imshow(weights[row, column], cmap=_COLORS, vmin=0, vmax=1, interpolation="nearest")
        axes.set_title(f"{row_names[row]}, {column_names[column]}", fontsize=min(8, 6 * num_keys * cell), pad=3)
        _label(axes, labels[0] if column == 0 else [], labels[1] if row == num_layers - 1 else [], font)
    figure.colorbar(image, cax=figure.add_axes(grid.scale()), label="weight")
    figure.supylabel("query", fontsize=_LARGEST_FONT)
    figure.supxlabel("key", fontsize=_LARGEST_FONT)
    figure.suptitle(title, y=1 - 0.08 / grid.size()[1], fontsize=11, parse_math=False)
    return figure


def draw_lines(
    weights: np.ndarray,
    queries: Sequence[str],
    keys: Sequence[str],
    *,
    names: Sequence[str] | None = None,
    colors: Sequence[int] | None = None,
    only: Collection[int] = (),
    title: str = "",
) -> Figure:
    """Draws a line from each query to each key, with the weight as its opacity and one colour per head.

    Args:
        weights: float [heads, query_len, key_len].
        queries: the tokens of the left column, as subword pieces.
        keys: the tokens of the right column, as subword pieces.
        names: names of the heads; the default is "head 1", "head 2", ...
        colors: colour numbers of the heads (see `color`), so that a head can have the same colour in all figures.
        only: positions of the queries whose lines are drawn; empty means all.
        title: title of the figure. If tokens are truncated, a note is appended.

    Raises:
        ValueError: the weights are empty, or their shape does not match the tokens.

    Reference: Vaswani et al., "Attention Is All You Need", 2017, Figures 3 to 5.
    """
    weights, queries, keys, title = _prepare(weights, queries, keys, title)
    num_heads, num_rows = len(weights), max(len(queries), len(keys))
    width = _LINES_ACROSS + sum(_width(pieces, _LARGEST_FONT) for pieces in (queries, keys))
    figure = Figure(figsize=(max(width, 4.0), _ROW * (num_rows + 1) + 1.0), layout="constrained")
    axes = figure.add_subplot()
    axes.set(xlim=(0, 1), ylim=(num_rows - 0.5, -1.5))
    axes.axis("off")
    palette = [color(number) for number in (range(num_heads) if colors is None else colors)]
    segments, shades = _segments(weights, palette, only)
    thickness = min(2.5, _SHARE_OF_ROW * _ROW * _POINTS / num_heads)
    axes.add_collection(LineCollection(segments, colors=shades, linewidths=thickness, capstyle="butt"))
    for x, side, head, pieces, marked in ((0, "right", "query", queries, only), (1, "left", "key", keys, ())):
        axes.text(x, -1, head, ha=side, va="center", fontsize=8, color="0.45", style="italic")
        for place, piece in enumerate(pieces):
            box = {"facecolor": "0.85", "edgecolor": "none", "pad": 1.5} if place in marked else None
            axes.text(x, place, piece, ha=side, va="center", fontsize=_LARGEST_FONT, bbox=box, parse_math=False)
    handles = [Line2D([], [], color=shade, linewidth=3) for shade in palette]
    names = names or _number_names("head", num_heads)
    figure.suptitle(title, fontsize=11, parse_math=False)
    figure.legend(handles, names, loc="outside lower center", ncols=min(num_heads, 4), fontsize=8, frameon=False)
    return figure


def _prepare(
    weights: np.ndarray, queries: Sequence[str], keys: Sequence[str], title: str
) -> tuple[np.ndarray, list[str], list[str], str]:
    """Truncates the weights and tokens to `MAX_TOKENS`, makes the tokens readable, and notes this in the title."""
    weights = np.asarray(weights)
    if weights.shape[-2:] != (len(queries), len(keys)) or not weights.size:
        tokens = f"{len(queries)} queries and {len(keys)} keys"
        raise ValueError(f"weights must have some layers and heads, for {tokens}; got the shape {weights.shape}")
    longest = max(len(queries), len(keys))
    if longest > MAX_TOKENS:
        title = f"{title}\n(the first {MAX_TOKENS} of {longest} tokens)".strip()
    weights = weights[..., :MAX_TOKENS, :MAX_TOKENS]
    return weights, readable(queries)[:MAX_TOKENS], readable(keys)[:MAX_TOKENS], title


class _Grid(NamedTuple):
    """The layout of the panels in a figure; all lengths are in inches.

    Attributes:
        panels: number of rows and columns of panels.
        panel_size: height and width of a panel.
        label_widths: space for the tokens beside the rows and below the columns.
    """

    panels: tuple[int, int]
    panel_size: tuple[float, float]
    label_widths: Sequence[float]

    def size(self) -> tuple[float, float]:
        """Returns the width and height of the figure, with labels, panels and the colour bar on the right."""
        (rows, columns), (height, width) = self.panels, self.panel_size
        row_space, column_space = self.label_widths
        return row_space + columns * (width + _COLUMN_GAP) + 1.1, column_space + rows * (height + _ROW_GAP) + 0.85

    def panel(self, row: int, column: int) -> tuple[float, float, float, float]:
        """Returns the left, bottom, width and height of a panel as fractions of the figure."""
        (rows, _), (height, width), (row_space, column_space) = self.panels, self.panel_size, self.label_widths
        left = 0.4 + row_space + column * (width + _COLUMN_GAP)
        return self._shares(left, 0.4 + column_space + (rows - 1 - row) * (height + _ROW_GAP), width, height)

    def scale(self) -> tuple[float, float, float, float]:
        """Returns the left, bottom, width and height of the colour bar as fractions of the figure."""
        width, height = self.size()
        bottom, top = 0.4 + self.label_widths[1], height - 0.45 - _ROW_GAP
        length = min(top - bottom, 4.0)
        return self._shares(width - 0.65, (bottom + top - length) / 2, 0.12, length)

    def _shares(self, *lengths: float) -> tuple[float, float, float, float]:
        """Converts left, bottom, width and height from inches to fractions of the figure."""
        width, height = self.size()
        return lengths[0] / width, lengths[1] / height, lengths[2] / width, lengths[3] / height


def _width(pieces: Sequence[str], font: float) -> float:
    """Returns the approximate width of the longest token, in inches."""
    return 0.7 * max(map(len, pieces), default=0) * font / _POINTS


def _label(axes: Axes, queries: Sequence[str], keys: Sequence[str], font: float) -> None:
    """Writes tokens beside the rows and below the columns."""
    axes.set_yticks(range(len(queries)), queries, fontsize=font, parse_math=False)
    axes.set_xticks(range(len(keys)), keys, rotation=90, fontsize=font, parse_math=False)
    axes.tick_params(length=0, pad=2)


def _segments(
    weights: np.ndarray, palette: Sequence[tuple[float, ...]], only: Collection[int]
) -> tuple[list[Segment], list[tuple[float, ...]]]:
    """Returns the end points of all lines, with the heads' lines side by side, and their colours with opacity."""
    segments: list[Segment] = []
    shades: list[tuple[float, ...]] = []
    for head, query, key in zip(*np.nonzero(weights >= _FAINTEST), strict=True):
        if not only or query in only:
            offset = _SHARE_OF_ROW * ((head + 0.5) / len(weights) - 0.5)
            segments.append(((0.02, query + offset), (0.98, key + offset)))
            shades.append((*palette[head][:3], min(float(weights[head, query, key]), 1.0)))
    return segments, shades


def _number_names(name: str, count: int) -> list[str]:
    return [f"{name} {number}" for number in range(1, count + 1)]

"""The pictures of attention show the given weights."""

import re
import xml.etree.ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from t2t_keras.pictures.attention import MAX_TOKENS, draw_heat_maps, draw_lines
from t2t_keras.pictures.saving import save

QUERIES = ["▁Ein", "▁Spiel", "haus", "</s>"]
KEYS = ["▁A", "▁play", "house", "$", "</s>"]


def random_weights(*shape: int) -> np.ndarray:
    """Each row sums to 1."""
    weights = np.random.default_rng(1).random(shape) ** 4
    return weights / weights.sum(-1, keepdims=True)


def svg(figure: Figure, path) -> xml.etree.ElementTree.Element:
    save(figure, path)
    return xml.etree.ElementTree.parse(path).getroot()


def texts(root: xml.etree.ElementTree.Element) -> list[str]:
    return ["".join(element.itertext()).strip() for element in root.iter("{http://www.w3.org/2000/svg}text")]


def strokes(root: xml.etree.ElementTree.Element) -> list[tuple[str, float]]:
    """Returns the colour and opacity of each line between tokens."""
    (group,) = [element for element in root.iter() if element.get("id", "").startswith("LineCollection")]
    styles = [element.get("style", "") for element in group.iter("{http://www.w3.org/2000/svg}path")]
    strokes_of_lines = []
    for style in styles:
        opacity = re.search(r"stroke-opacity: ([\d.]+)", style)
        strokes_of_lines.append((re.findall(r"stroke: (#\w+)", style)[0], float(opacity[1]) if opacity else 1.0))
    return strokes_of_lines


def test_each_head_has_a_map_whose_cells_are_as_dark_as_their_weights():
    weights = random_weights(2, 3, 4, 5)
    figure = draw_heat_maps(weights, QUERIES, KEYS, title="attention")
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())[::-1] / 255  # from the bottom
    panels = [axes for axes in figure.axes if axes.images]
    titles = [axes.get_title() for axes in panels]
    assert titles == [f"layer {layer}, head {head}" for layer in (1, 2) for head in (1, 2, 3)]
    for panel, expected in zip(panels, weights.reshape(6, 4, 5), strict=True):
        for (query, key), weight in np.ndenumerate(expected):
            column, row = panel.transData.transform((key, query)).astype(int)
            np.testing.assert_allclose(pixels[row, column], matplotlib.colormaps["Blues"](weight), atol=0.01)


def test_tokens_and_names_are_text(tmp_path):
    root = svg(
        draw_heat_maps(random_weights(1, 1, 4, 5), QUERIES, KEYS, column_names=["mean"], title="of $x$"),
        tmp_path / "a.svg",
    )
    words = texts(root)
    for text in (
        "Ein",
        "Spiel",
        "·haus",
        "<end>",
        "A",
        "play",
        "·house",
        "$",
        "layer 1, mean",
        "of $x$",
        "query",
        "key",
    ):
        assert text in words
    words = texts(
        svg(draw_lines(random_weights(2, 4, 5), QUERIES, KEYS, names=["first", "second"]), tmp_path / "b.svg")
    )
    for text in ("Ein", "Spiel", "·haus", "A", "play", "·house", "$", "first", "second"):
        assert text in words
    assert words.count("<end>") == 2


def test_lines_are_as_opaque_as_their_weights_and_coloured_by_head(tmp_path):
    weights = np.zeros((2, 3, 3))
    weights[0] = [[0.75, 0.25, 0], [0, 1, 0], [0.5, 0.495, 0.005]]
    weights[1] = [[0, 0.4, 0.6], [0, 0, 1], [1, 0, 0]]
    pieces = ["▁a", "▁b", "▁c"]
    blue, orange = "#0072b2", "#e69f00"
    actual = strokes(svg(draw_lines(weights, pieces, pieces), tmp_path / "all.svg"))
    first = [(blue, 0.75), (blue, 0.25), (blue, 1.0), (blue, 0.5), (blue, 0.495)]
    assert actual == [*first, (orange, 0.4), (orange, 0.6), (orange, 1.0), (orange, 1.0)]
    single_color = svg(draw_lines(weights, pieces, pieces, colors=[1, 0], only=[0]), tmp_path / "one.svg")
    assert strokes(single_color) == [(orange, 0.75), (orange, 0.25), (blue, 0.4), (blue, 0.6)]


@pytest.mark.integration
@pytest.mark.parametrize("tokens", [MAX_TOKENS, 300])
def test_pictures_of_long_sentences_are_truncated_with_a_note(tokens):
    pieces = ["▁word"] * tokens
    for figure in (
        draw_heat_maps(random_weights(6, 16, tokens, tokens), pieces, pieces, title="it"),
        draw_heat_maps(random_weights(1, 1, tokens, tokens), pieces, pieces, title="it"),
        draw_lines(random_weights(8, tokens, tokens), pieces, pieces, title="it"),
    ):
        assert max(figure.get_size_inches()) < 22
        assert figure.get_suptitle() == ("it" if tokens == MAX_TOKENS else "it\n(the first 80 of 300 tokens)")


@pytest.mark.parametrize("shape", [(1, 2, 4, 4), (1, 0, 4, 5)])
def test_weights_with_a_wrong_shape_are_rejected(shape):
    with pytest.raises(ValueError, match=rf"for 4 queries and 5 keys; got the shape \({', '.join(map(str, shape))}\)"):
        draw_heat_maps(np.ones(shape), QUERIES, KEYS)

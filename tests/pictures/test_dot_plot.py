"""A dot plot has one dot per value on the line of its row."""

import xml.etree.ElementTree as ElementTree

from matplotlib.figure import Figure

from t2t_keras.pictures.dot_plot import draw_dots

SVG = "{http://www.w3.org/2000/svg}"


def test_every_value_is_a_dot_on_its_row(tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda self, file, **options: (figures.append(self), file.write(b"picture")))
    draw_dots(tmp_path / "dots.svg", {"base": [1.0, 2.0], "none": [], "big": [3.0]}, "BLEU")
    (axes,) = figures[0].axes
    dots = [(line.get_xdata().tolist(), line.get_ydata().tolist()) for line in axes.lines]
    assert dots == [([1.0, 2.0], [0, 0]), ([], []), ([3.0], [2])]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["base", "none", "big"]
    assert axes.get_xlabel() == "BLEU" and axes.get_ylim()[0] > axes.get_ylim()[1]
    assert (tmp_path / "dots.svg").read_bytes() == b"picture"


def test_the_names_are_text(tmp_path):
    draw_dots(tmp_path / "dots.svg", {"one": [1.0], "none": []}, "a score")
    texts = ["".join(element.itertext()) for element in ElementTree.parse(tmp_path / "dots.svg").iter(f"{SVG}text")]
    assert {"one", "none", "a score"} <= set(texts)

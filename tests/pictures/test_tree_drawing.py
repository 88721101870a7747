"""Drawings of trees: each constituent is above its words."""

import xml.etree.ElementTree as ElementTree

from t2t_keras.pictures.tree_drawing import tree_svg
from t2t_keras.tasks.parsing.trees import tree_of_line

SVG = "{http://www.w3.org/2000/svg}"


def draw(line: str) -> tuple[dict[str, tuple[float, float]], int]:
    """Returns the positions of all texts, and the number of lines."""
    root = ElementTree.fromstring(tree_svg(tree_of_line(line)))
    places = {text.text or "": (float(text.attrib["x"]), float(text.attrib["y"])) for text in root.iter(f"{SVG}text")}
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    assert all(0 < x < width and 0 < y < height for x, y in places.values())
    return places, len(list(root.iter(f"{SVG}line")))


def test_constituents_stand_above_the_middle_of_their_children():
    places, lines = draw("(S (NP (DT The) (NN dog)) (VP (XX <barks>)))")
    assert set(places) == {"TOP", "S", "NP", "VP", "DT", "NN", "The", "dog", "<barks>"}
    x, y = ({name: place[axis] for name, place in places.items()} for axis in (0, 1))
    assert x["The"] == x["DT"] < x["NP"] < x["dog"] < x["VP"] == x["<barks>"]
    assert x["NP"] == (x["The"] + x["dog"]) / 2 and x["S"] == (x["NP"] + x["VP"]) / 2 == x["TOP"]
    assert y["TOP"] < y["S"] < y["NP"] < y["DT"] == y["<barks>"] < y["The"] == y["dog"]
    assert lines == 8

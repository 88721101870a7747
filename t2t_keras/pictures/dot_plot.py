"""Draws dot plots, with a dot for each value of each row, such as the scores of a table's rows."""

import pathlib
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from t2t_keras.pictures.colors import color
from t2t_keras.pictures.saving import save


def draw_dots(path: str | pathlib.Path, values: Mapping[str, Sequence[float]], title: str) -> None:
    """Draws the values of each row on a separate line, the first row on top, and writes a PNG or SVG file.

    Args:
        path: path of the file, with the extension .png or .svg.
        values: values of each row by name; a row without values becomes an empty line.
        title: label of the x axis.
    """
    figure = Figure(figsize=(7, 1.2 + 0.25 * len(values)), layout="constrained")
    axes = figure.add_subplot()
    for place, row in enumerate(values.values()):
        axes.plot(row, [place] * len(row), "o", color=color(0), alpha=0.7)
    axes.set(xlabel=title, yticks=range(len(values)), yticklabels=list(values), ylim=(len(values) - 0.5, -0.5))
    axes.grid(alpha=0.3)
    save(figure, path)

"""A dot for each value of each row, such as the scores of a table's rows."""

import pathlib
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from t2t_keras.pictures.colors import color
from t2t_keras.pictures.saving import save


def draw_dots(path: str | pathlib.Path, values: Mapping[str, Sequence[float]], title: str) -> None:
    """Draws the values of each row on a line of its own, the first row on top, and writes a PNG or SVG file.

    `values` are those of each row by its name; a row without values is an empty line. `title` says what they are.
    """
    figure = Figure(figsize=(7, 1.2 + 0.25 * len(values)), layout="constrained")
    axes = figure.add_subplot()
    for place, row in enumerate(values.values()):
        axes.plot(row, [place] * len(row), "o", color=color(0), alpha=0.7)
    axes.set(xlabel=title, yticks=range(len(values)), yticklabels=list(values), ylim=(len(values) - 0.5, -0.5))
    axes.grid(alpha=0.3)
    save(figure, path)

"""Draws curves over a common axis, such as the time of layers against the length of their inputs."""

import pathlib
from collections.abc import Mapping

from matplotlib.figure import Figure

from t2t_keras.pictures.colors import color, marker
from t2t_keras.pictures.saving import save


def draw_curves(
    path: str | pathlib.Path,
    panels: Mapping[str, Mapping[str, Mapping[float, float]]],
    x_label: str,
    *,
    is_logarithmic: tuple[bool, bool] = (True, True),
) -> None:
    """Draws curves in panels side by side, and writes a PNG or SVG file.

    Args:
        path: path of the file, with the extension .png or .svg.
        panels: the curves of each panel by name, keyed by the label of the panel's y axis. A curve maps x to y; both
            must be positive on logarithmic axes.
        x_label: label of the x axes.
        is_logarithmic: whether the x and the y axes are logarithmic.
    """
    figure = Figure(figsize=(5.5 * len(panels), 4.2), layout="constrained")
    for axes, (title, curves) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        for number, (name, curve) in enumerate(curves.items()):
            shape = {"color": color(number), "marker": marker(number), "markersize": 4}
            axes.plot(list(curve), list(curve.values()), label=name, **shape)
        axes.set(xlabel=x_label, ylabel=title)
        axes.grid(alpha=0.3)
        if any(curves.values()):  # a logarithmic axis needs values
            if is_logarithmic[0]:
                axes.set_xscale("log", base=2 if max(map(max, filter(None, curves.values()))) < 1e6 else 10)
            if is_logarithmic[1]:
                axes.set_yscale("log")
            axes.legend(fontsize="small")
    save(figure, path)

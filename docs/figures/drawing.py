"""Boxes, arrows and words as an SVG file, on a light background, so that it is legible on dark pages too."""

import html
from collections.abc import Sequence

# Paths that start at the middle of a mark.
SHAPES = {
    "circle": "m-5,0a5,5 0 1 0 10,0a5,5 0 1 0 -10,0z",
    "square": "m-4.5,-4.5h9v9h-9z",
    "diamond": "m0,-6.5l6.5,6.5l-6.5,6.5l-6.5,-6.5z",
    "triangle": "m0,-6l6,10.5h-12z",
}
# Fills and borders in Okabe and Ito's colours, which the colour-blind can distinguish; the fills are lighter.
_COLORS = {
    "attention": ("#fbe3b8", "#e69f00"),
    "network": ("#cfe8f7", "#0072b2"),
    "norm": ("#f8f3b4", "#a89c00"),
    "embedding": ("#f3d9e6", "#cc79a7"),
    "output": ("#c5ebdf", "#009e73"),
    "plain": ("#ffffff", "#777777"),
    "dropped": ("#fbfbf9", "#bbbbbb"),
}
_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1b1b1b;text-anchor:middle}.code{font:11.5px monospace}"
    ".small{font-size:11.5px}.quiet{fill:#5a5a5a}.left{text-anchor:start}.right{text-anchor:end}"
    "a:hover rect{stroke-width:3}.line{fill:none;stroke:#444;stroke-width:1.4}"
)
_LINE = 16  # distance of two lines of a box


class Drawing:
    """An SVG file to which calls add shapes; all lengths are in pixels, from the upper left corner.

    Args:
        width, height: the size.
        title: an alternative text.
    """

    def __init__(self, width: int, height: int, title: str) -> None:
        self._size = width, height
        self._title = title
        self._parts: list[str] = []

    def box(
        self, x: float, y: float, width: float, height: float, *lines: str, kind: str = "plain", link: str = ""
    ) -> None:
        """Draws a box of one kind of colours around lines of words, with words in backticks as code.

        `link` is a file of the repository, with `#NAME` for a class or function in it.
        """
        fill, border = _COLORS[kind]
        place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
        parts = [f'<rect {place} rx="5" fill="{fill}" stroke="{border}" stroke-width="1.5"/>']
        first = y + height / 2 - _LINE * (len(lines) - 1) / 2
        parts += [_text(x + width / 2, first + _LINE * number, line) for number, line in enumerate(lines)]
        if link:
            parts = [f'<a href="../../{link}">', *parts, "</a>"]
        self._parts += parts

    def frame(self, x: float, y: float, width: float, height: float) -> None:
        """Draws a frame around boxes; call it before you draw them."""
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="10" fill="#f0f0ec" stroke="#999"/>'
        )

    def bar(self, x: float, y: float, width: float, height: float, kind: str) -> None:
        """Draws a bar without words."""
        fill, border = _COLORS[kind]
        place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
        self._parts.append(f'<rect {place} fill="{fill}" stroke="{border}"/>')

    def curve(self, points: Sequence[tuple[float, float]], kind: str) -> None:
        """Draws a line from point to point in the colour of a kind."""
        border = _COLORS[kind][1]
        self._parts.append(f'<path d="{_path(points)}" fill="none" stroke="{border}" stroke-width="2"/>')

    def mark(self, x: float, y: float, kind: str, shape: str) -> None:
        """Draws a small shape in the colour of a kind: one of `SHAPES`, which distinguish what colours may not."""
        border = _COLORS[kind][1]
        self._parts.append(f'<path d="M{x:g},{y:g}{SHAPES[shape]}" fill="{border}" stroke="#fff" stroke-width="1"/>')

    def rule(self, *points: tuple[float, float]) -> None:
        """Draws a thin line of a grid, behind later shapes."""
        self._parts.append(f'<path d="{_path(points)}" fill="none" stroke="#d8d8d4"/>')

    def inset(self, x: float, y: float, picture: str) -> None:
        """Inserts the text of another SVG file at a position."""
        self._parts.append(picture.replace("<svg ", f'<svg x="{x:g}" y="{y:g}" ', 1).strip())

    def arrow(self, *points: tuple[float, float]) -> None:
        """Draws a line from point to point, with a head at the last one."""
        self._parts.append(f'<path class="line" marker-end="url(#head)" d="{_path(points)}"/>')

    def line(self, *points: tuple[float, float]) -> None:
        """Draws a line from point to point."""
        self._parts.append(f'<path class="line" d="{_path(points)}"/>')

    def plus(self, x: float, y: float) -> None:
        """Draws a circle in which two inputs are added."""
        self._parts.append(
            f'<circle cx="{x:g}" cy="{y:g}" r="9" fill="#fff" stroke="#444" stroke-width="1.4"/>'
            f'<path class="line" d="M{x - 9:g},{y:g}h18M{x:g},{y - 9:g}v18"/>'
        )

    def text(self, x: float, y: float, words: str, *classes: str) -> None:
        """Draws words, centred, or from (class "left") or up to (class "right") the position; "small" and "quiet" are
        styles.
        """
        self._parts.append(_text(x, y, words, *classes))

    def svg(self) -> str:
        """Returns the text of the file."""
        width, height = self._size
        title = html.escape(self._title)
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">',
                f"<title>{title}</title>",
                f"<style>{_STYLE}</style>",
                '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
                'orient="auto"><path d="M0,0L8,4L0,8z" fill="#444"/></marker></defs>',
                f'<rect width="{width}" height="{height}" rx="8" fill="#fbfbf9"/>',
                *self._parts,
                "</svg>\n",
            ]
        )


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:g},{y:g}" for x, y in points)


def _text(x: float, middle: float, words: str, *classes: str) -> str:
    if words.startswith("`"):
        words, classes = words.strip("`"), (*classes, "code")
    names = f' class="{" ".join(classes)}"' if classes else ""
    return f'<text x="{x:g}" y="{middle + 4:g}"{names}>{html.escape(words, quote=False)}</text>'

"""Draws constituency trees, with each parent centred above its children."""

import html
from typing import NamedTuple

from t2t_keras.tasks.parsing.trees import Tree

_CHARACTER, _GAP, _ROW = 8, 14, 40  # width of a character, gap between words and height of a level, in pixels
_STYLE = "text{font:13px sans-serif;text-anchor:middle}line{stroke:#888}.word{font-weight:bold}"


class _Text(NamedTuple):
    """A positioned label or word.

    Attributes:
        x: horizontal centre in pixels.
        depth: depth in the tree; the root has 0.
        kind: "label" or "word".
        text: the text.
    """

    x: float
    depth: int
    kind: str
    text: str


def tree_svg(tree: Tree) -> str:
    """Returns the tree as SVG; the placeholder part of speech `XX` is omitted."""
    texts: list[_Text] = []
    lines: list[tuple[_Text, _Text]] = []
    finished: list[list[_Text]] = [[]]
    waiting: list[tuple[Tree, int, bool, int]] = [(tree, 0, False, 0)]
    right = float(_GAP)
    while waiting:
        part, depth, is_done, least = waiting.pop()  # least: minimum width of the column, in characters
        if part.word is None and part.children and not is_done:
            finished.append([])
            waiting.append((part, depth, True, 0))
            least = max(least, len(part.label)) if len(part.children) == 1 else 0
            waiting += [(child, depth + 1, False, least) for child in reversed(part.children)]
            continue
        if is_done:
            below = finished.pop()
            label = _Text((below[0].x + below[-1].x) / 2, depth, "label", part.label)
            texts.append(label)
            lines += [(label, child) for child in below]
        else:
            label, *others = shown = _at_the_bottom(part, depth, right, least)
            right += _CHARACTER * max(least, *(len(text.text) for text in shown)) + _GAP
            texts += shown
            lines += [(label, other) for other in others]
        finished[-1].append(label)
    return _svg(texts, lines, right)


def _at_the_bottom(part: Tree, depth: int, left: float, least: int) -> list[_Text]:
    """Returns a part-of-speech label and the word below it, or the label of a constituent without children."""
    shown = [("label", part.label), ("word", part.word or "")]
    shown = [(kind, text) for kind, text in shown if text and (kind == "word" or part.word is None or text != "XX")]
    middle = left + _CHARACTER * max(least, *(len(text) for _, text in shown)) / 2
    return [_Text(middle, depth + level, kind, text) for level, (kind, text) in enumerate(shown)]


def _svg(texts: list[_Text], lines: list[tuple[_Text, _Text]], width: float) -> str:
    height = (1 + max(text.depth for text in texts)) * _ROW

    def y(text: _Text) -> int:
        return text.depth * _ROW + _ROW // 2

    size = f'width="{width:g}" height="{height}" viewBox="0 0 {width:g} {height}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', f"<style>{_STYLE}</style>"]
    for above, below in lines:
        parts.append(f'<line x1="{above.x:g}" y1="{y(above) + 5}" x2="{below.x:g}" y2="{y(below) - 13}"/>')
    for text in texts:
        parts.append(f'<text class="{text.kind}" x="{text.x:g}" y="{y(text)}">{html.escape(text.text)}</text>')
    return "\n".join([*parts, "</svg>", ""])

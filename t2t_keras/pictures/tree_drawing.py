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
    levels: list[list[_Text]] = [[]]
    waiting: list[tuple[Tree, int, bool, int]] = [(tree, 0, False, 0)]
    right = float(_GAP)
    while waiting:
        part, depth, is_done, min_width = waiting.pop()  # min_width: of the column, in characters
        if part.word is None and part.children and not is_done:
            levels.append([])
            waiting.append((part, depth, True, 0))
            min_width = max(min_width, len(part.label)) if len(part.children) == 1 else 0
            waiting += [(child, depth + 1, False, min_width) for child in reversed(part.children)]
            continue
        if is_done:
            children = levels.pop()
            label = _Text((children[0].x + children[-1].x) / 2, depth, "label", part.label)
            texts.append(label)
            lines += [(label, child) for child in children]
        else:
            label, *words = entries = _leaf_texts(part, depth, right, min_width)
            right += _CHARACTER * max(min_width, *(len(text.text) for text in entries)) + _GAP
            texts += entries
            lines += [(label, word) for word in words]
        levels[-1].append(label)
    return _svg(texts, lines, right)


def _leaf_texts(part: Tree, depth: int, left: float, min_width: int) -> list[_Text]:
    """Returns a part-of-speech label and the word below it, or the label of a constituent without children."""
    entries = [("label", part.label), ("word", part.word or "")]
    entries = [(kind, text) for kind, text in entries if text and (kind == "word" or part.word is None or text != "XX")]
    middle = left + _CHARACTER * max(min_width, *(len(text) for _, text in entries)) / 2
    return [_Text(middle, depth + level, kind, text) for level, (kind, text) in enumerate(entries)]


def _svg(texts: list[_Text], lines: list[tuple[_Text, _Text]], width: float) -> str:
    height = (1 + max(text.depth for text in texts)) * _ROW

    def y(text: _Text) -> int:
        return text.depth * _ROW + _ROW // 2

    size = f'width="{width:g}" height="{height}" viewBox="0 0 {width:g} {height}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', f"<style>{_STYLE}</style>"]
    for parent, child in lines:
        parts.append(f'<line x1="{parent.x:g}" y1="{y(parent) + 5}" x2="{child.x:g}" y2="{y(child) - 13}"/>')
    for text in texts:
        parts.append(f'<text class="{text.kind}" x="{text.x:g}" y="{y(text)}">{html.escape(text.text)}</text>')
    return "\n".join([*parts, "</svg>", ""])

"""Replaces a comment of a document with an interactive figure of attention, using the scripts of the server's page.

The figure is a single script, because a page that is opened from a disk cannot load other scripts.
"""

import html
import re
from typing import Any

from docutils import nodes
from source_files import ROOT
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

_COMMENT = "<!-- attention to point at -->"
_PAGE = ROOT / "t2t_keras/serving/page"
_WEIGHTS = ROOT / "docs/images/attention.json"


class AttentionFigure(SphinxTransform):
    """Replaces the comment with the figure."""

    default_priority = 1

    def apply(self, **kwargs: Any) -> None:
        for node in list(self.document.findall(nodes.raw)):
            if node.astext().strip() == _COMMENT:
                node.replace_self(nodes.raw("", _frame(), format="html"))


def _frame() -> str:
    """Returns the figure in a frame, so that the styles of the page and of the site do not interfere."""
    style, card = ((_PAGE / name).read_text(encoding="utf-8") for name in ("page.css", "index.html"))
    (card,) = re.findall(r'<section id="attention".*?</section>', card, re.DOTALL)
    paths = (_PAGE / "attention.js", _PAGE / "choice.js", ROOT / "docs/site/attention_figure.js")
    code = "\n".join(path.read_text(encoding="utf-8").replace("export class", "class") for path in paths)
    weights = _WEIGHTS.read_text(encoding="utf-8")
    page = f"""<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>Attention</title><style>{style}</style>
{card}<script>{{
const WEIGHTS = {weights}{code}}}</script>"""
    return f'<iframe class="attention" title="Attention to point at" srcdoc="{html.escape(page)}"></iframe>'


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the transform."""
    app.add_transform(AttentionFigure)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

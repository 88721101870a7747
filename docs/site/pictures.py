"""Inserts drawings with links into the pages, because readers cannot follow links within an image."""

import posixpath
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from source_files import ROOT, place_of
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

_LINK = re.compile(r'<a href="([^"#]+)(?:#([^"]*))?">')


class DrawingsInPages(SphinxTransform):
    """Replaces images with the contents of their SVG files if these contain links to files of the repository."""

    default_priority = 1

    def apply(self, **kwargs: Any) -> None:
        for node in list(self.document.findall(nodes.image)):
            path = Path(self.env.relfn2path(node["uri"], self.env.docname)[1])
            if path.suffix == ".svg" and "<a href" in (drawing := path.read_text(encoding="utf-8")):
                self.env.note_dependency(str(path))
                node.replace_self(nodes.raw("", self._linked(drawing, path), format="html"))

    def _linked(self, drawing: str, path: Path) -> str:
        """Returns the drawing with links from the page to the pages of the files."""

        def link(match: re.Match[str]) -> str:
            file = posixpath.normpath(path.parent.relative_to(ROOT).joinpath(match[1]).as_posix())
            page = self.app.builder.get_relative_uri(self.env.docname, file)
            return f'<a href="{page}{place_of(match[2] or "", file)}">'

        return f'<div class="drawing">\n{_LINK.sub(link, drawing)}</div>'


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the transform."""
    app.add_transform(DrawingsInPages)
    return {"parallel_read_safe": False, "parallel_write_safe": True}

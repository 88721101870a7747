"""Creates pages for the files that documents link to: `t2t_keras/losses.py` becomes `t2t_keras/losses.py.html`.

A link whose text is the name of a class or function, as "[`Adam`](../t2t_keras/training/optimizer.py)", leads to the
line where it is defined. The reference also links each name to its line.
"""

import ast
import importlib
import inspect
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

ROOT = Path(__file__).parents[2]
_LANGUAGES = {".c": "c", ".py": "python", ".sh": "bash", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}
_PREFIX = "line"

# Every file that something links to, relative to the repository.
_linked: set[str] = set()


def _line_of(name: str, file: str) -> int | None:
    """Returns the line in which a Python file defines a class or function."""
    if not file.endswith(".py"):
        return None
    for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return node.lineno
    return None


def place_of(name: str, file: str) -> str:
    """The anchor of a class or function in the page of a file, which will be made; empty where there is none."""
    _linked.add(file)
    line = _line_of(name, file)
    return f"#{_PREFIX}-{line}" if line else ""


class LinksToFiles(SphinxTransform):
    """Turns links to files, which MyST takes for downloads, into links to their pages."""

    default_priority = 1

    def apply(self, **kwargs: Any) -> None:
        for node in list(self.document.findall(addnodes.download_reference)):
            path = Path(self.env.relfn2path(node["reftarget"], self.env.docname)[1]).resolve()
            file = path.relative_to(ROOT).as_posix()
            target = self.app.builder.get_relative_uri(self.env.docname, file) + place_of(node.astext(), file)
            node.replace_self(nodes.reference("", "", *node.children, internal=True, refuri=target))


def linkcode_resolve(domain: str, info: dict[str, str]) -> str | None:
    """The page and line of a documented object, seen from a page in docs/; asked by sphinx.ext.linkcode."""
    found: Any = importlib.import_module(info["module"])
    for name in info["fullname"].split("."):
        found = getattr(found, name, None)
    found = inspect.unwrap(found.fget if isinstance(found, property) and found.fget else found)
    try:
        file = Path(inspect.getsourcefile(found) or "").relative_to(ROOT).as_posix()
        line = inspect.getsourcelines(found)[1]
    except (TypeError, ValueError, OSError):  # data, or a definition of another package
        return None
    _linked.add(file)
    return f"../{file}.html#{_PREFIX}-{line}"


def _pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """A page for each linked file, its lines numbered."""
    for file in sorted(_linked):
        text, language = (ROOT / file).read_text(encoding="utf-8"), _LANGUAGES.get(Path(file).suffix, "text")
        code = app.builder.highlighter.highlight_block(
            text, language, linenos="inline", lineanchors=_PREFIX, anchorlinenos=True
        )
        yield file, {"title": file, "body": f"<h1>{file}</h1>{code}", "parents": []}, "page.html"


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers it; which files are linked is known only if all documents are read."""
    app.add_transform(LinksToFiles)
    app.connect("html-collect-pages", _pages)
    app.connect("env-get-outdated", lambda app, env, *changes: list(itertools.chain(env.found_docs)))
    return {"parallel_read_safe": False, "parallel_write_safe": True}

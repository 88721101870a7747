"""Creates pages for the files to which documents link: `t2t_keras/losses.py` becomes `t2t_keras/losses.py.html`.

A link whose text is the name of a class or function, such as "[`Adam`](../t2t_keras/training/optimizer.py)", leads to
the line of its definition. The reference also links each name to its line.
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

# All files that have a link, relative to the repository.
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
    """Returns the anchor of a class or function in the page that is made of a file, or an empty string."""
    _linked.add(file)
    line = _line_of(name, file)
    return f"#{_PREFIX}-{line}" if line else ""


class LinksToFiles(SphinxTransform):
    """Turns links to files, which MyST treats as downloads, into links to their pages."""

    default_priority = 1

    def apply(self, **kwargs: Any) -> None:
        for node in list(self.document.findall(addnodes.download_reference)):
            path = Path(self.env.relfn2path(node["reftarget"], self.env.docname)[1]).resolve()
            file = path.relative_to(ROOT).as_posix()
            target = self.app.builder.get_relative_uri(self.env.docname, file) + place_of(node.astext(), file)
            node.replace_self(nodes.reference("", "", *node.children, internal=True, refuri=target))


def linkcode_resolve(domain: str, info: dict[str, str]) -> str | None:
    """Returns the page and line of a documented object, relative to a page in docs/; sphinx.ext.linkcode calls it."""
    documented: Any = importlib.import_module(info["module"])
    for name in info["fullname"].split("."):
        documented = getattr(documented, name, None)
    documented = inspect.unwrap(documented.fget if isinstance(documented, property) and documented.fget else documented)
    try:
        file = Path(inspect.getsourcefile(documented) or "").relative_to(ROOT).as_posix()
        line = inspect.getsourcelines(documented)[1]
    except (TypeError, ValueError, OSError):  # data, or a definition of another package
        return None
    _linked.add(file)
    return f"../{file}.html#{_PREFIX}-{line}"


def _pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yields a page with line numbers for each linked file."""
    for file in sorted(_linked):
        text, language = (ROOT / file).read_text(encoding="utf-8"), _LANGUAGES.get(Path(file).suffix, "text")
        code = app.builder.highlighter.highlight_block(
            text, language, linenos="inline", lineanchors=_PREFIX, anchorlinenos=True
        )
        yield file, {"title": file, "body": f"<h1>{file}</h1>{code}", "parents": []}, "page.html"


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the extension; it must read all documents to know the linked files."""
    app.add_transform(LinksToFiles)
    app.connect("html-collect-pages", _pages)
    app.connect("env-get-outdated", lambda app, env, *changes: list(itertools.chain(env.found_docs)))
    return {"parallel_read_safe": False, "parallel_write_safe": True}

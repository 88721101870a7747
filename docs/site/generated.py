"""Generates pages from the code: one for each program, the table of the server's metrics, and docstrings."""

import functools
import importlib
import re
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from absl import flags
from docutils import nodes
from prometheus_client.parser import text_string_to_metric_families
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util.docutils import SphinxDirective
from sphinx.util.inspect import signature, stringify_signature

ROOT = Path(__file__).parents[2]
_PROGRAMS = ROOT / "docs/programs"  # pages that are generated for the site, and ignored by git
# An entry of `launch.helping.text`: a flag and its description. Descriptions continue, or start, in lines with more
# indentation.
_FLAG = re.compile(r" {2}(-\S+(?:, -\S+)?)(?: +(.*))?")
# The maximum for the arguments of a class of settings.
_MAX_CHARACTERS = 400
# Modules of programs whose flags were removed. absl remembers some modules by their address, which must not be reused.
_removed: list[Any] = []


def _program_names() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [target.split(":")[0].rpartition(".")[2] for target in project["scripts"].values()]


@functools.cache
def _help(name: str) -> str:
    """Returns the output of `python -m launch.NAME --help`. It removes the flags afterwards, since those of two
    programs collide.
    """
    module = importlib.import_module(f"launch.{name}")
    text = importlib.import_module("launch.helping").text(module, f"{name}.py")
    for each in [each for each in sys.modules if each == "launch" or each.startswith("launch.")]:
        for flag in flags.FLAGS.get_flags_for_module(sys.modules[each]):
            delattr(flags.FLAGS, flag.name)
        _removed.append(sys.modules.pop(each))
    return text


def _paragraph(text: str) -> nodes.paragraph:
    """Returns plain text with its flags as code."""
    parts = re.split(r"(?<!\S)(--\w[\w=./]*\w|[A-Z]+(?:_[A-Z]+)+)", text)
    inline_nodes = [nodes.literal("", part) if number % 2 else nodes.Text(part) for number, part in enumerate(parts)]
    return nodes.paragraph("", "", *inline_nodes)


def _write_program_pages(app: Sphinx, config: Config) -> None:
    _PROGRAMS.mkdir(exist_ok=True)
    names = _program_names()
    for path in _PROGRAMS.glob("*.md"):
        if path.stem not in names:
            path.unlink()
    for name in names:
        text = f"# launch.{name}\n\n```{{program-flags}} {name}\n```\n"
        path = _PROGRAMS / f"{name}.md"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def _link_programs(app: Sphinx, name: str, source: list[str]) -> None:
    """Links each program in the table of all programs to its page, which only exists on the site."""
    if name == "docs/programs":
        source[0] = re.sub(r"^\| (`launch\.(\w+)`)", r"| [\1](programs/\2.md)", source[0], flags=re.MULTILINE)


class Program(SphinxDirective):
    """The page of one program: its description, examples, and its flags in groups."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        page: list[nodes.Node] = []
        for block in _help(self.arguments[0]).split("\n\n"):
            title, _, rest = block.partition("\n")
            if rest.startswith("  -"):
                page.append(nodes.rubric("", title.removesuffix(":").capitalize()))
                page.append(self._flags(rest.splitlines()))
            elif re.match(r"Examples?:$", title) or block.startswith(("python ", "t2t-")):
                examples = rest if title.startswith("Example") else block
                page.append(nodes.literal_block("", textwrap.dedent(examples), language="bash"))
            else:
                page.append(_paragraph(block))
        return page

    def _flags(self, lines: list[str]) -> nodes.definition_list:
        entries: list[tuple[str, list[str]]] = []
        for line in lines:
            if match := _FLAG.fullmatch(line):
                entries.append((match[1], [match[2] or ""]))
            else:
                entries[-1][1].append(line.strip())
        listed = nodes.definition_list(classes=["flags"])
        for form, words in entries:
            term = nodes.term("", "", nodes.literal("", form))
            definition = nodes.definition("", _paragraph(" ".join(words).strip()))
            listed += nodes.definition_list_item("", term, definition)
        return listed


def _metric_rows() -> Iterator[tuple[str, str, str, str]]:
    """Returns name, kind, labels and meaning of each metric of a server that has answered a request."""
    from t2t_keras.serving.metrics import Metrics

    metrics = Metrics()
    with metrics.request("rest", "predict"):
        pass
    for family in text_string_to_metric_families(metrics.text().decode("utf-8")):
        labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
        if not family.name.endswith("_created"):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            yield name, family.type, ", ".join(labels), family.documentation


class ServerMetrics(SphinxDirective):
    """The table of the server's metrics."""

    def run(self) -> list[nodes.Node]:
        rows = [f"| `{name}` | {kind} | {labels} | {words} |" for name, kind, labels, words in _metric_rows()]
        return self.parse_text_to_nodes("\n".join(["| name | kind | labels | meaning |", "|---|---|---|---|", *rows]))


def _as_plain_text(app: Sphinx, kind: str, name: str, documented: object, options: object, lines: list[str]) -> None:
    """Escapes markup in docstrings, which only use backticks: stars, bars, @ and final underscores are literal."""
    for number, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            line = re.sub(r"([*|@]|(?<=\w)_(?!\w))", r"\\\1", line)
            lines[number] = re.sub(r"(?<=: )(?=\w\.$)", r"\\", line)  # "N." does not start a list.


def _own_arguments(
    app: Sphinx, kind: str, name: str, documented: Any, options: object, arguments: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Documents the arguments of a class that its base hides behind `*args` and `**kwargs`; none if there are too many
    to read, since the fields are listed.
    """
    if kind == "class" and arguments == "(*args, **kwargs)":
        arguments = stringify_signature(
            signature(documented.__init__, bound_method=True), show_return_annotation=False, unqualified_typehints=True
        )
    if kind == "class" and is_dataclass(documented) and len(arguments or "") > _MAX_CHARACTERS:
        arguments = ""
    return arguments, returned


def _is_left_out(
    app: Sphinx, kind: str, name: str, documented: object, is_skipped: bool, options: object
) -> bool | None:
    """Whether to skip a member: a field of a named tuple, which the class describes."""
    return True if (getattr(documented, "__doc__", None) or "").startswith("Alias for field number") else None


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the directives."""
    app.add_directive("program-flags", Program)
    app.connect("config-inited", _write_program_pages)
    app.connect("source-read", _link_programs)
    app.add_directive("server-metrics", ServerMetrics)
    app.connect("autodoc-process-docstring", _as_plain_text, priority=400)  # before napoleon writes markup
    app.connect("autodoc-process-signature", _own_arguments)
    app.connect("autodoc-skip-member", _is_left_out)
    return {"parallel_read_safe": False, "parallel_write_safe": True}

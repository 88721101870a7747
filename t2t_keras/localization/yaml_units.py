"""YAML: the strings that are values."""

import json
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

from t2t_keras.errors import InputError, optional_module
from t2t_keras.localization.units import Edit, Options, Unit, text_part
from t2t_keras.text.repair import surrogates_joined

MISSING = "the package pyyaml is missing: pip install '.[localization]'"
_STRING = "tag:yaml.org,2002:str"
_PROPERTIES = re.compile(r"(?:[&!][^\s]*\s+)*")
_OTHER_BREAKS = re.compile("[\x85\u2028\u2029]")  # line breaks in YAML 1.1
_LONGEST_LINE = 80


def yaml_units(text: str, options: Options) -> list[Unit]:
    """Returns the units of a YAML file, which may have several documents.

    Raises:
        InputError: the file is not valid YAML; names the line.
    """
    yaml = optional_module("yaml", MISSING)
    try:
        documents = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise InputError(f"line {mark.line + 1 if mark else 1}: not valid YAML: {problem}") from None
    except RecursionError:
        raise InputError("line 1: not valid YAML: nested too deep") from None
    seen: set[int] = set()
    return [_unit(yaml, text, *each) for document in documents for each in _strings(document, seen, False)]


def _strings(node: Any, seen: set[int], is_flow: bool) -> Iterator[tuple[Any, bool]]:
    """Yields the nodes of strings that are values, and whether each is in brackets; an alias repeats its node."""
    if node is None or id(node) in seen:
        return
    seen.add(id(node))
    if node.id == "scalar":
        if node.tag == _STRING and node.value:
            yield node, is_flow
    else:
        for child in node.value:
            yield from _strings(child[1] if node.id == "mapping" else child, seen, is_flow or bool(node.flow_style))


def _unit(yaml: Any, text: str, node: Any, is_flow: bool) -> Unit:
    start, end = node.start_mark.index, node.end_mark.index
    properties = _PROPERTIES.match(text, start, end)
    start = properties.end() if properties else start
    raw = text[start:end].rstrip()
    spell: Callable[[str], str] = {
        "'": lambda value: "'" + value.replace("'", "''") + "'" if "\n" not in value else _quoted(value),
        '"': _quoted,
        "|": lambda value: _block(raw, value),
        ">": lambda value: _block(raw, value),
    }.get(node.style, lambda value: _plain(yaml, value, is_flow))

    def edits(translation: str) -> list[Edit]:
        new = _quoted(translation) if _OTHER_BREAKS.search(translation) else spell(translation)
        return [Edit(start, start + len(raw), new)]

    # PyYAML reads two escapes of a surrogate pair, as JSON has them, as two characters.
    return Unit(text_part(surrogates_joined(node.value)), start, edits, replaces=True)


def _quoted(value: str) -> str:
    return _OTHER_BREAKS.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, ensure_ascii=False))


def _plain(yaml: Any, value: str, is_flow: bool) -> str:
    """Returns a text without quotes if every parser reads it back as a string."""
    try:
        is_same = yaml.safe_load(f"[{value}]" if is_flow else f"key: {value}") == (
            [value] if is_flow else {"key": value}
        )
    except yaml.YAMLError:
        is_same = False
    return value if is_same and not re.search("[\n#]", value) else _quoted(value)


def _block(raw: str, value: str) -> str:
    """Returns a text as a block with the header and the indentation of `raw`; long lines of a folded block wrap."""
    header, *lines = raw.split("\n")
    indent = next((line[: len(line) - len(line.lstrip())] for line in lines if line.strip()), "  ")
    rows = value.rstrip("\n").split("\n")
    first = next((row for row in rows if row.strip()), "")
    indent = indent[: len(indent) - len(first) + len(first.lstrip(" "))]  # with an explicit indentation
    if header.startswith(">"):
        if any(row.startswith((" ", "\t")) for row in rows):
            header = header.replace(">", "|", 1)
        else:
            width = max(_LONGEST_LINE - len(indent), *(len(line.strip()) for line in lines), 20)
            wrapped = ["\n".join(_wrapped(row, width)) for row in rows]
            rows = "\n\n".join(wrapped).split("\n")
    return "\n".join([header, *((indent + row).rstrip() for row in rows)])


def _wrapped(row: str, width: int) -> list[str]:
    return textwrap.wrap(row, width, break_long_words=False, break_on_hyphens=False) or [""]

"""Extracts pairs of description and summary from the docstrings in a Python wheel.

According to PEP 257, a docstring begins with a summary line. The rest of the docstring is the text to summarise.
"""

import ast
import inspect
import re
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path

from t2t_keras.data.cleaning import Pair
from t2t_keras.data.sources.corpora_files import damage_named
from t2t_keras.errors import explained

_MAX_WORDS = 200  # of a description; the rest is cut off
_DESCRIPTION_WORDS, _SUMMARY_WORDS = 20, (3, 30)  # the fewest words of a description; the fewest and most of a summary

_SECTION = re.compile(
    # An underlined heading, a heading such as "Args:" on its own line, or a Sphinx field.
    r"^(?:[A-Z][\w /&-]*\n[=~^*#-]{3,}|(?:Args|Arguments|Parameters|Returns?|Yields?|Raises|Examples?|Notes?|"
    r"References?|See also|Attributes|Warns|Usage|Todo)s?:?|"
    r"[:@](?:param|type|returns?|rtype|raises?|arg|keyword|ivar)\b.*)$",
    re.MULTILINE | re.IGNORECASE,
)
_EXAMPLE = re.compile(r"^\s*(?:>>>|\.\. |\$ ).*$", re.MULTILINE)
_ROLE = re.compile(r":[\w:+-]+:`~?([^`<]*?)(?:\s*<[^>]*>)?`")
_QUOTED = re.compile(r"``?([^`]*)``?")
_TITLE = re.compile(r"(?:[=~^*#-]{3,}\n)?(.*)\n[=~^*#-]{3,}$", re.MULTILINE)
_SENTENCE = re.compile(r"(.+?(?<!i\.e)(?<!e\.g)(?<!etc)(?<!cf)[.!?])(?:\s|$)", re.DOTALL)


def read_wheel(path: str | Path) -> list[Pair]:
    """Returns the pairs of description and first sentence in a wheel, one for each distinct description, in order.

    Raises:
        InputError: the wheel cannot be read or is damaged.
    """
    pairs: dict[str, str] = {}
    with damage_named(path), explained(f"{path}: cannot be read"), zipfile.ZipFile(path) as wheel:
        for name in sorted(name for name in wheel.namelist() if name.endswith(".py") and "/tests/" not in name):
            for description, summary in read_module(wheel.read(name)):
                pairs.setdefault(description, summary)
    return list(pairs.items())


def read_module(source: bytes) -> Iterator[Pair]:
    """Yields the usable pairs from the docstrings of a module; nothing if `source` is not valid Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # for example, about invalid escape sequences
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, documented) and (docstring := ast.get_docstring(node, clean=False)):
            yield from pair_of(docstring)


def pair_of(docstring: str) -> Iterator[Pair]:
    """Yields the description and the first sentence of a docstring, or nothing if they have unsuitable lengths.

    Sphinx markup, examples, and everything from the first section (such as the parameters) on are removed.
    """
    text = inspect.cleandoc(docstring)
    if title := _TITLE.match(text):
        text = f"{title[1]}.{text[title.end() :]}"
    first = _SECTION.search(text)
    text = _EXAMPLE.sub("", text[: first.start()] if first else text)
    text = _QUOTED.sub(r"\1", _ROLE.sub(r"\1", text))
    summary, _, description = text.partition("\n\n")
    sentence = _SENTENCE.match(summary)
    if sentence:
        description = f"{summary[sentence.end() :]} {description}"
        summary = sentence[1]
    words, summary_words = description.split()[:_MAX_WORDS], summary.split()
    least, most = _SUMMARY_WORDS
    if len(words) >= _DESCRIPTION_WORDS and least <= len(summary_words) <= most:
        yield " ".join(words), " ".join(summary_words)

"""Descriptions and their first sentences, from the docstrings of the Python code in a wheel.

PEP 257 asks that a docstring begins with a line that sums it up; the rest is what a summary can be made of.
"""

import ast
import inspect
import re
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path

from t2t_keras.data.cleaning import Pair
from t2t_keras.errors import InputError

_MAX_WORDS = 200  # of a description; what follows is cut off
_DESCRIPTION_WORDS, _SUMMARY_WORDS = 20, (3, 30)  # the fewest, and the fewest and most

_SECTION = re.compile(
    # A heading and what underlines it, "Args:" alone on its line, or a field of Sphinx.
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
    """The distinct pairs of description and first sentence in a wheel, in order; an InputError if it is broken."""
    pairs: dict[str, str] = {}
    try:
        with zipfile.ZipFile(path) as wheel:
            for name in sorted(name for name in wheel.namelist() if name.endswith(".py") and "/tests/" not in name):
                for description, summary in read_module(wheel.read(name)):
                    pairs.setdefault(description, summary)
    except (zipfile.BadZipFile, OSError) as error:
        raise InputError(f"{path}: not a readable wheel: {error}") from error
    return list(pairs.items())


def read_module(source: bytes) -> Iterator[Pair]:
    """Yields the usable pairs of a module's docstrings in its order; none of what is no Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about its escapes
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, documented) and (docstring := ast.get_docstring(node, clean=False)):
            yield from pair_of(docstring)


def pair_of(docstring: str) -> Iterator[Pair]:
    """The description of a docstring and its first sentence, or nothing if it is too short for both.

    Markup of Sphinx, examples and everything from the first section on, such as that of the parameters, are left out.
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

"""What --help prints: what a program does, examples in the form that was typed, and its flags in groups."""

import dataclasses
import functools
import pathlib
import re
import textwrap
from collections.abc import Iterable, Mapping
from importlib import metadata
from types import ModuleType

from absl import flags

ASKING = frozenset({"-h", "-help", "--help", "--helpshort"})

_PATHS, _SEARCH, _OTHERS, _EVERY = "files and folders", "search", "settings", "every program"
_FORMS = {"int": "=N", "float": "=NUMBER"}
_WIDTH, _INDENT = 100, 28
_LAUNCH = "t2t_keras.launch."
# What absl adds to the words of a flag: the values that it may have, and that it may be repeated.
_ABSL_NOTES = re.compile(r"^<[^>]*>: |; ?repeat this option to specify a list of values$")
_COMMON_FLAGS = (
    ("-h, --help", "Print this and end."),
    ("--helpfull", "Print all flags, also those of the libraries underneath, and end."),
    ("--version", "Print which versions this is, and of what it is built on, and end."),
    ("--flagfile=PATH", "Read more flags from a file, one a line."),
)


def text(module: ModuleType, paths: Iterable[str], called: str) -> str:
    """The help of a program: the docstring of its module, with examples, and its flags.

    `paths` are the names of flags that are files or folders; `called` is how the program was called, `sys.argv[0]`.
    """
    sections: dict[str, list[str]] = {_PATHS: [], _SEARCH: [], _OTHERS: []}
    module_flags = sorted(
        flags.FLAGS.get_key_flags_for_module(module), key=lambda flag: (not is_required(flag), flag.name)
    )
    searches = any(flag.name == "beam_size" for flag in module_flags)  # others have flags of the same names
    searching, paths = _search_settings() if searches else set(), set(paths)
    for flag in module_flags:
        group = _PATHS if flag.name in paths else _SEARCH if flag.name in searching else _OTHERS
        sections[group].append(_entry(*_describe(flag, flag.name in paths)))
    sections[_EVERY] = [_entry(*each) for each in _COMMON_FLAGS]
    section_texts = [f"{group}:\n{chr(10).join(entries)}" for group, entries in sections.items() if entries]
    return as_typed("\n\n".join([(module.__doc__ or "").strip(), *section_texts]), called)


def _search_settings() -> set[str]:
    """The names of flags that say how to search."""
    from t2t_keras.config import DecodeConfig

    return {"engine", "compute_type", "ensemble_mean", *(field.name for field in dataclasses.fields(DecodeConfig))}


def _describe(flag: flags.Flag, is_path: bool) -> tuple[str, str]:
    """How a flag is written, and what it is for."""
    kind = flag.flag_type()
    values = getattr(flag.parser, "enum_values", None)
    if kind == "bool":
        form = f"--[no]{flag.name}"
    elif values:
        form = f"--{flag.name}={'|'.join(values)}"
    else:
        form = f"--{flag.name}{_FORMS.get(kind, '=PATH' if is_path else '=TEXT')}"
    words = _ABSL_NOTES.sub("", " ".join((flag.help or "").split()))
    if kind.startswith("multi") and "times" not in words:
        words += " Any number of times."
    if is_required(flag):
        words += " (required)"
    default = ",".join(flag.default) if isinstance(flag.default, list) else flag.default
    return form, words + (f" (default: {default})" if default and "default" not in words else "")


def is_required(flag: flags.Flag) -> bool:
    """Whether a program cannot do without it."""
    return any("must have a value other than None" in validator.message for validator in flag.validators)


def _entry(form: str, words: str) -> str:
    """A flag with its words beside it, or below it where it is long."""
    lines = textwrap.wrap(words, _WIDTH - _INDENT, break_on_hyphens=False) or [""]
    if len(form) > _INDENT - 4:
        lines = ["", *lines]
    first, *rest = lines
    return "\n".join([f"  {form:<{_INDENT - 2}}{first}".rstrip(), *(" " * _INDENT + line for line in rest)])


def as_typed(words: str, called: str) -> str:
    """The words with programs as the one that was typed is called, where that is not `python -m launch.NAME`, and with
    the package by its name where it is installed.
    """
    path = pathlib.Path(called)
    is_command = path.name.startswith("t2t-")
    is_module = path.parts[-3:-1] == ("t2t_keras", "launch")  # unless that is a clone of the repository
    is_module = is_module and not (path.parents[1] / "pyproject.toml").is_file()
    if is_command:
        for module, command in _commands().items():
            words = re.sub(rf"(python -m |\b)launch\.{module}\b", command, words)
    elif is_module:
        words = re.sub(r"(?<![\w.])launch\.(?=[a-z])", _LAUNCH, words)
    return words.replace("pip install '.[", "pip install 't2t_keras[") if is_command or is_module else words


@functools.cache
def _commands() -> Mapping[str, str]:
    """The installed command of each program, by the name of its module; none where the package is not installed."""
    points = [point for point in metadata.entry_points(group="console_scripts") if point.value.startswith(_LAUNCH)]
    return {point.value.removeprefix(_LAUNCH).partition(":")[0]: point.name for point in points}

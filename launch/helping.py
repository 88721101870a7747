"""The text of --help: the purpose of a program, examples in the form that the user typed, and flags in groups."""

import dataclasses
import functools
import pathlib
import re
import textwrap
from collections.abc import Mapping
from importlib import metadata
from types import ModuleType

from absl import flags

HELP_FLAGS = frozenset({"-h", "-help", "--help", "--helpshort"})

_PATHS, _SEARCH, _OTHERS, _EVERY = "files and folders", "search", "settings", "every program"
_FORMS = {"int": "=N", "float": "=NUMBER", "tuple": "=N,...", "path": "=PATH"}
_WIDTH, _INDENT = 100, 28
_LAUNCH = "t2t_keras.launch."
# Text that absl adds to the help of a flag: its valid values, and that it may be repeated.
_ABSL_NOTES = re.compile(r"^<[^>]*>: |; ?repeat this option to specify a list of values$")
_COMMON_FLAGS = (
    ("-h, --help", "Print this help and exit."),
    ("--helpfull", "Print all flags, including those of libraries, and exit."),
    ("--version", "Print the versions of this package and of its main dependencies, and exit."),
    ("--flagfile=PATH", "Read more flags from a file, one per line."),
)


def text(module: ModuleType, called: str) -> str:
    """Returns the help of a program: the docstring of its module, with examples, and its flags.

    Args:
        module: the program's module.
        called: the name by which the program was called, `sys.argv[0]`.
    """
    sections: dict[str, list[str]] = {_PATHS: [], _SEARCH: [], _OTHERS: []}
    module_flags = sorted(
        flags.FLAGS.get_key_flags_for_module(module), key=lambda flag: (not is_required(flag), flag.name)
    )
    # Programs without a search have flags of the same names.
    has_search = any(flag.name == "beam_size" for flag in module_flags)
    search_names = _search_settings() if has_search else set()
    for flag in module_flags:
        group = _PATHS if "path" in flag.flag_type() else _SEARCH if flag.name in search_names else _OTHERS
        sections[group].append(_entry(*_describe(flag)))
    sections[_EVERY] = [_entry(*each) for each in _COMMON_FLAGS]
    section_texts = [f"{group}:\n{chr(10).join(entries)}" for group, entries in sections.items() if entries]
    return as_typed("\n\n".join([(module.__doc__ or "").strip(), *section_texts]), called)


def _search_settings() -> set[str]:
    """Returns the names of the flags that configure the search."""
    from t2t_keras.config import DecodeConfig

    return {"engine", "compute_type", "ensemble_mean", *(field.name for field in dataclasses.fields(DecodeConfig))}


def _describe(flag: flags.Flag) -> tuple[str, str]:
    """Returns the form of a flag, and its description."""
    kind = flag.flag_type()
    values = getattr(flag.parser, "enum_values", None)
    if kind == "bool":
        form = f"--[no]{flag.name}"
    elif values:
        form = f"--{flag.name}={'|'.join(values)}"
    else:
        form = f"--{flag.name}{_FORMS.get(kind.removeprefix('multi '), '=TEXT')}"
    words = _ABSL_NOTES.sub("", " ".join((flag.help or "").split()))
    if kind.startswith("multi") and "times" not in words:
        words += " May be given several times."
    if is_required(flag):
        words += " (required)"
    default = ",".join(map(str, flag.default)) if isinstance(flag.default, list | tuple) else flag.default
    return form, words + (f" (default: {default})" if default and "default:" not in words else "")


def is_required(flag: flags.Flag) -> bool:
    """Returns whether a program requires the flag."""
    return any("must have a value other than None" in validator.message for validator in flag.validators)


def _entry(form: str, words: str) -> str:
    """Formats a flag with its description on the same line, or below the flag if it is long."""
    lines = textwrap.wrap(words, _WIDTH - _INDENT, break_on_hyphens=False) or [""]
    if len(form) > _INDENT - 4:
        lines = ["", *lines]
    first, *rest = lines
    return "\n".join([f"  {form:<{_INDENT - 2}}{first}".rstrip(), *(" " * _INDENT + line for line in rest)])


def as_typed(words: str, called: str) -> str:
    """Replaces the names of programs in a text by the form that the user typed.

    For an installed package, "pip install '.[EXTRA]'" also becomes "pip install 't2t_keras[EXTRA]'".

    Args:
        words: text with programs in the form `python -m launch.NAME`.
        called: the name by which the running program was called, `sys.argv[0]`.
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
    """Returns the installed command of each program, by the name of its module; empty if none is installed."""
    points = [point for point in metadata.entry_points(group="console_scripts") if point.value.startswith(_LAUNCH)]
    return {point.value.removeprefix(_LAUNCH).partition(":")[0]: point.name for point in points}

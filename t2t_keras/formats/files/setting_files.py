"""Reads and checks files of settings; error messages name the file."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t2t_keras.errors import InputError, explained, optional_module


def read_bytes(path: Path) -> bytes:
    """Reads a file; raises an InputError that names it if that fails."""
    with explained(f"{path}: cannot be read"):
        return path.read_bytes()


def read_json(path: Path) -> dict[str, Any]:
    """Reads a file that holds a JSON object.

    Raises:
        InputError: the file cannot be read, or does not hold a JSON object; names the file and the reason.
    """
    contents = read_bytes(path)
    try:
        values = json.loads(contents.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(values, dict):
        raise InputError(f"{path} must contain a JSON object, got {type(values).__name__}")
    return values


def parse_yaml(text: bytes, place: str) -> dict[str, Any]:
    """Parses settings in YAML.

    Raises:
        InputError: the package pyyaml is missing, or the text is not a YAML mapping; the message begins with `place`.
    """
    yaml = optional_module("yaml", "the package pyyaml is missing: pip install '.[convert]'")
    try:
        values = yaml.safe_load(text.decode("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{place} cannot be read as YAML: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict):
        raise InputError(f"{place} must contain settings by name, got {type(values).__name__}")
    return values


def only_file(folder: Path, pattern: str) -> Path:
    """Returns the only file of a folder that matches a pattern.

    Raises:
        InputError: there is not exactly one such file; says how many there are.
    """
    fitting = sorted(folder.glob(pattern))
    if len(fitting) != 1:
        raise InputError(f"{folder} must contain exactly one file {pattern}, but contains {len(fitting)}")
    return fitting[0]


_KINDS = {int: "a whole number", bool: "true or false", str: "text"}


def check_kinds(path: Path | str, settings: Mapping[str, Any], kinds: Mapping[str, type]) -> None:
    """Checks that settings are present and have the expected types.

    Raises:
        InputError: a setting is missing or has the wrong type; names the file, the setting and the value.
    """
    for name, kind in kinds.items():
        if type(settings.get(name)) is not kind:
            raise InputError(f"{path} must define {name} as {_KINDS[kind]}; got {settings.get(name)!r}")


def number_setting(path: Path | str, settings: Mapping[str, Any], name: str, default: float) -> float:
    """Returns an optional setting that is a number.

    Raises:
        InputError: the value is not a number; names the file, the setting and the value.
    """
    value = settings.get(name, default)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InputError(f"{path}: {name} must be a number, got {value!r}")
    return value


def whole_setting(path: Path | str, settings: Mapping[str, Any], name: str, default: int) -> int:
    """Returns an optional setting that is an integer; None, 0 and a missing setting mean the default.

    Raises:
        InputError: the value is not an integer; names the file, the setting and the value.
    """
    value = settings.get(name)
    if value is not None:
        check_kinds(path, settings, {name: int})
    return value or default


def check_settings(path: Path | str, settings: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Checks that settings, if present, have the values that this project's Transformer supports.

    Raises:
        InputError: a value is not supported; names the file, the setting and the value.
    """
    for name, value in expected.items():
        if name in settings and settings[name] != value:
            raise InputError(f"{path}: {name}={settings[name]!r} is not supported; supported: {value!r}")

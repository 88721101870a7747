"""What a preparation has done so far, so that it goes on where it was interrupted."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from t2t_keras.data.writing import replacing
from t2t_keras.errors import InputError


class Journal:
    """The steps that are done, with their results; begins anew when the settings are others.

    Args:
        path: the journal's file.
        settings: plain values, all that the results depend on.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self._path = path
        self._entries = read_json(path) or {}
        if self._entries.get("settings") != settings:
            self._entries = {"settings": settings, "done": {}}

    @property
    def done(self) -> dict[str, Any]:
        """The results of the steps that are done, by name."""
        return self._entries["done"]

    def step(self, name: str, work: Callable[[], Any]) -> Any:
        """The result of a step (plain values), which is run unless it is done."""
        if name not in self.done:
            self.add(name, work())
        return self.done[name]

    def add(self, name: str, result: Any) -> None:
        """Records that a step is done."""
        self.done[name] = result
        write_json(self._path, self._entries)


def read_json(path: Path) -> dict[str, Any] | None:
    """The contents of a JSON file; None if there is no such file.

    Raises:
        InputError: it is no JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise InputError(f"{path}: damaged: {error}") from error


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Writes plain values as a JSON file."""
    with replacing(path) as file:
        json.dump(values, file, indent=1, ensure_ascii=False)
        file.write("\n")

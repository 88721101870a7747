"""What a preparation has done so far, so that it goes on where it was interrupted."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from t2t_keras.errors import InputError
from t2t_keras.machine.files import replacing


class Journal:
    """The steps that are done, with their results; what depends on settings that have changed is not done.

    Args:
        path: the journal's file.
        settings: plain values, all that the results depend on.
        dependents: of a setting on which only some steps depend, the first words of their names.
    """

    def __init__(
        self, path: Path, settings: Mapping[str, Any], dependents: Mapping[str, tuple[str, ...]] | None = None
    ) -> None:
        self._path = path
        before = read_json(path)
        self._entries = before or {"settings": settings, "done": {}}
        if self._entries["settings"] == settings:
            return
        old, all_steps = self._entries["settings"], ("",)
        changed = [key for key in old.keys() | settings.keys() if old.get(key) != settings.get(key)]
        outdated = tuple(start for key in changed for start in (dependents or {}).get(key, all_steps))
        done = {name: result for name, result in self.done.items() if not name.startswith(outdated)}
        self._entries = {"settings": settings, "done": done}
        write_json(path, self._entries)  # before any file of an outdated step is replaced

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

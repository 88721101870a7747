"""The journal of a preparation, which allows it to resume after an interruption."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from t2t_keras.machine.files import read_json, write_json


class Journal:
    """The completed steps of a preparation and their results, stored in a JSON file.

    If settings have changed since the file was written, the steps that depend on them are removed.

    Args:
        path: the file.
        settings: current settings (JSON values).
        dependents: for each setting, the prefixes of the names of the steps that depend on it. All steps depend on a
            setting that is not listed.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any], dependents: Mapping[str, tuple[str, ...]]) -> None:
        self._path = path
        previous = read_json(path, lambda values: {"settings": dict(values["settings"]), "done": dict(values["done"])})
        self._entries = previous or {"settings": settings, "done": {}}
        if self._entries["settings"] == settings:
            return
        old, all_steps = self._entries["settings"], ("",)
        keys = [key for key in old.keys() | settings.keys() if old.get(key) != settings.get(key)]
        old_prefixes = tuple(start for key in keys for start in dependents.get(key, all_steps))
        results = {name: result for name, result in self.done.items() if not name.startswith(old_prefixes)}
        self._entries = {"settings": settings, "done": results}
        write_json(path, self._entries)  # written before any file of an outdated step is replaced

    @property
    def done(self) -> dict[str, Any]:
        """The results of the completed steps by name."""
        return self._entries["done"]

    def step(self, name: str, work: Callable[[], Any]) -> Any:
        """Returns the result of a step (JSON values), and runs the step unless it is done."""
        if name not in self.done:
            self.add(name, work())
        return self.done[name]

    def add(self, name: str, result: Any) -> None:
        """Records a completed step and its result."""
        self.done[name] = result
        write_json(self._path, self._entries)

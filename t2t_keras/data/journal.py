"""The journal of a preparation, with which an interrupted one resumes."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from t2t_keras.machine.files import read_json, write_json


class Journal:
    """The completed steps of a preparation and their results, in the file `path`.

    If `settings` (JSON values) differ from the file's, steps are dropped whose names start with one of the `dependents`
    of a changed setting; a setting without dependents drops all steps.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any], dependents: Mapping[str, tuple[str, ...]]) -> None:
        self._path = path
        before = read_json(path, lambda values: {"settings": dict(values["settings"]), "done": dict(values["done"])})
        self._entries = before or {"settings": settings, "done": {}}
        if self._entries["settings"] == settings:
            return
        old, all_steps = self._entries["settings"], ("",)
        changed = [key for key in old.keys() | settings.keys() if old.get(key) != settings.get(key)]
        outdated = tuple(start for key in changed for start in dependents.get(key, all_steps))
        done = {name: result for name, result in self.done.items() if not name.startswith(outdated)}
        self._entries = {"settings": settings, "done": done}
        write_json(path, self._entries)  # before any file of an outdated step is replaced

    @property
    def done(self) -> dict[str, Any]:
        """The results of the completed steps by name."""
        return self._entries["done"]

    def step(self, name: str, work: Callable[[], Any]) -> Any:
        """Returns the result of a step (JSON values), running it unless it is done."""
        if name not in self.done:
            self.add(name, work())
        return self.done[name]

    def add(self, name: str, result: Any) -> None:
        self.done[name] = result
        write_json(self._path, self._entries)

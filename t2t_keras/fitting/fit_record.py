"""The record of a fit, `fit.json`: what was asked for and chosen, and which steps are done."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t2t_keras.errors import InputError
from t2t_keras.machine.files import read_json, write_json


class FitRecord:
    """Values by name, in a file that is replaced whenever they change.

    Args:
        path: the file; its folder is made when something is first recorded.

    Raises:
        InputError: the file is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._values: dict[str, Any] = read_json(path) or {}

    def __getitem__(self, name: str) -> Any:
        """A value, or None if it was not recorded."""
        return self._values.get(name)

    def update(self, **values: Any) -> None:
        """Records JSON values; None takes one back."""
        self._values = {name: value for name, value in {**self._values, **values}.items() if value is not None}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self._path, self._values)

    def check_same(self, name: str, values: Mapping[str, Any], folder: Path) -> None:
        """Records values the first time, and refuses others later.

        Args:
            name: what they are recorded as.
            values: JSON values by name.
            folder: what the message names.

        Raises:
            InputError: something differs; names it.
        """
        before = self[name]
        if before is None:
            self.update(**{name: dict(values)})
            return
        keys = sorted(key for key in before.keys() | values.keys() if before.get(key) != values.get(key))
        if keys:
            changes = ", ".join(f"{key}: {_short(before.get(key))} -> {_short(values.get(key))}" for key in keys)
            raise InputError(f"{folder} was begun with other data or choices ({changes}); use another folder")


def _short(value: Any) -> str:
    """A value for a message; checksums are abbreviated."""
    return f"{value[:12]}..." if isinstance(value, str) and len(value) == 64 else repr(value)

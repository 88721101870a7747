"""The record of a fit, `fit.json`: the inputs, the choices and the completed steps."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t2t_keras.data.checksums import changes
from t2t_keras.errors import InputError
from t2t_keras.machine.files import read_json, write_json


class FitRecord:
    """Values by name in a JSON file, which is rewritten atomically at each change.

    Raises:
        InputError: the file is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._values: dict[str, Any] = read_json(path) or {}

    def __getitem__(self, name: str) -> Any:
        """Returns a value, or None if it is not recorded."""
        return self._values.get(name)

    def update(self, **values: Any) -> None:
        """Records JSON values; None removes a value."""
        self._values = {name: value for name, value in {**self._values, **values}.items() if value is not None}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self._path, self._values)

    def check_same(self, name: str, values: Mapping[str, Any], folder: Path) -> None:
        """Records JSON values as `name` the first time, and compares them with the recorded ones later.

        Raises:
            InputError: the values differ; names `folder` and the differences.
        """
        old_values = self[name]
        if old_values is None:
            self.update(**{name: dict(values)})
            return
        if changed := changes(old_values, values):
            text = ", ".join(changed)
            raise InputError(f"{folder} was started with different data or choices ({text}); use a different folder")

"""Everything that can be set, as frozen dataclasses that travel as JSON.

`Config` is what a run's `config.json` holds: a model, the data it was prepared
from, its training and its decoding. `override` applies `section.field=value`
settings with the type of the field.
"""

import dataclasses
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from t2t_keras.config.data_config import DataConfig
from t2t_keras.config.decode_config import DecodeConfig
from t2t_keras.config.model_config import ModelConfig
from t2t_keras.config.train_config import TrainConfig
from t2t_keras.config.values import checked, parsed
from t2t_keras.errors import InputError


@dataclasses.dataclass(frozen=True)
class Config:
    """All of a run: the contents of its `config.json`."""

    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    train: TrainConfig = TrainConfig()
    decode: DecodeConfig = DecodeConfig()

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """The configuration as nested plain values, ready for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Mapping[str, Any]]) -> "Config":
        """The inverse of `to_dict`; a missing field keeps its default.

        Raises:
            InputError: an unknown section or field, or a value of the wrong type.
        """
        config = cls()
        for section, fields in values.items():
            if section not in SECTIONS:
                raise InputError(f"unknown section {section!r} in a configuration; valid: {', '.join(SECTIONS)}")
            if not isinstance(fields, Mapping):
                raise InputError(f"section {section!r} of a configuration must hold settings by name, got {fields!r}")
            current = getattr(config, section)
            taken = {
                name: checked(f"{section}.{name}", _field_type(section, name), value) for name, value in fields.items()
            }
            config = dataclasses.replace(config, **{section: dataclasses.replace(current, **taken)})
        return config


SECTIONS: dict[str, type] = {
    "model": ModelConfig,
    "data": DataConfig,
    "train": TrainConfig,
    "decode": DecodeConfig,
}


def override(config: Config, settings: Iterable[str]) -> Config:
    """Applies settings of the form "section.field=value", in order.

    Args:
        config: what the settings change.
        settings: for example ["model.dropout_rate=0.3", "train.max_steps=8000"].

    Returns:
        A new configuration.

    Raises:
        InputError: a setting without "=", an unknown section or field, or a
            value that is not of the field's type; names what is valid.
    """
    changes: dict[str, dict[str, Any]] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        section, dot, name = key.strip().partition(".")
        if not equals or not dot:
            raise InputError(f"--set {setting!r}: expected section.field=value, for example train.max_steps=8000")
        changes.setdefault(section, {})[name] = parsed(key.strip(), _field_type(section, name), text.strip())
    for section, fields in changes.items():
        config = dataclasses.replace(config, **{section: dataclasses.replace(getattr(config, section), **fields)})
    return config


def differences(old: Config, new: Config) -> list[str]:
    """The fields in which two configurations differ, as "section.field: old -> new"."""
    return [
        f"{section}.{name}: {value!r} -> {new.to_dict()[section][name]!r}"
        for section, fields in old.to_dict().items()
        for name, value in fields.items()
        if value != new.to_dict()[section][name]
    ]


def _field_type(section: str, name: str) -> Any:
    if section not in SECTIONS:
        raise InputError(f"unknown section {section!r} in {section}.{name}; valid: {', '.join(SECTIONS)}")
    hints = typing.get_type_hints(SECTIONS[section])
    if name not in hints:
        raise InputError(f"unknown setting {section}.{name}; valid: {', '.join(f'{section}.{h}' for h in hints)}")
    return hints[name]

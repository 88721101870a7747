"""The configuration of a run, its JSON form, and overrides of its settings."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from t2t_keras.config.data_config import DataConfig
from t2t_keras.config.decode_config import DecodeConfig
from t2t_keras.config.model_config import ModelConfig, model_config_class
from t2t_keras.config.train_config import TrainConfig
from t2t_keras.config.transformer_config import TransformerConfig
from t2t_keras.errors import InputError
from t2t_keras.values import annotations, checked, parsed


@dataclasses.dataclass(frozen=True)
class Config:
    """All settings of a run: the contents of its `config.json`."""

    model: ModelConfig = TransformerConfig()
    data: DataConfig = DataConfig()
    train: TrainConfig = TrainConfig()
    decode: DecodeConfig = DecodeConfig()

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Nested values that JSON can represent; "family" is the first entry of "model"."""
        values = dataclasses.asdict(self)
        return {**values, "model": {_FAMILY: self.model.family, **values["model"]}}

    @classmethod
    def from_dict(cls, values: Mapping[str, Mapping[str, Any]]) -> "Config":
        """The inverse of `to_dict`. Missing fields have their defaults; a missing family means the Transformer.

        Raises:
            InputError: an unknown section, family or field, or a value of the wrong type.
        """
        config = cls()
        for section, fields in values.items():
            if section not in SECTIONS:
                raise InputError(f"unknown section {section!r} in a configuration; valid: {', '.join(SECTIONS)}")
            if not isinstance(fields, Mapping):
                raise InputError(
                    f"section {section!r} of a configuration must contain settings by name, got {fields!r}"
                )
            if section == "data" and isinstance(fields.get("lowercase"), bool):  # of earlier versions
                fields = {**fields, "lowercase": "both" if fields["lowercase"] else "none"}
            config = _change(config, section, fields, checked)
        return config


SECTIONS = tuple(field.name for field in dataclasses.fields(Config))
_FAMILY = "family"


def override(config: Config, settings: Iterable[str]) -> Config:
    """Returns a copy of a configuration changed by settings of the form "section.field=value".

    If a field is set more than once, the last value counts. A change of "model.family" resets all other model settings
    to the new family's defaults, except the vocabulary sizes.

    Raises:
        InputError: a setting not of this form, an unknown section or field, or a value of the wrong type. The message
            lists the valid names or values.
    """
    changes: dict[str, dict[str, str]] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        section, dot, name = key.strip().partition(".")
        if not equals or not dot:
            raise InputError(f"--set {setting!r}: expected section.field=value, for example train.max_steps=8000")
        if section not in SECTIONS:
            raise InputError(f"unknown section {section!r} in {section}.{name}; valid: {', '.join(SECTIONS)}")
        changes.setdefault(section, {})[name] = text.strip()
    for section, fields in changes.items():
        config = _change(config, section, fields, parsed)
    return config


def _change(config: Config, section: str, fields: Mapping[str, Any], convert: Callable[[str, Any, Any], Any]) -> Config:
    """Changes fields of one section; `convert` makes a valid value from a field's name, annotation and new value."""
    values, current = dict(fields), getattr(config, section)
    if section == "model" and _FAMILY in values:
        family = model_config_class(values.pop(_FAMILY))
        vocab_sizes = {"vocab_size": current.vocab_size, "source_vocab_size": current.source_vocab_size}
        current = current if type(current) is family else family(**vocab_sizes)
    kind: Any = type(current)
    types = annotations(kind)
    if unknown := [name for name in values if name not in types]:
        valid = ", ".join(f"{section}.{name}" for name in types)
        raise InputError(f"unknown setting {section}.{unknown[0]}; valid: {valid}")
    changes = {name: convert(f"{section}.{name}", types[name], value) for name, value in values.items()}
    return dataclasses.replace(config, **{section: dataclasses.replace(current, **changes)})


def differences(old: Config, new: Config) -> list[str]:
    """Lists the fields in which two configurations differ, as "section.field: old -> new"."""
    before, after = old.to_dict(), new.to_dict()
    if old.model.family != new.model.family:  # different fields, which cannot be compared
        before["model"], after["model"] = ({_FAMILY: config.model.family} for config in (old, new))
    return [
        f"{section}.{name}: {value!r} -> {after[section][name]!r}"
        for section, fields in before.items()
        for name, value in fields.items()
        if value != after[section][name]
    ]

"""The settings of a new run: a preset or other settings, completed by the prepared data."""

import dataclasses
from collections.abc import Iterable, Sequence

from t2t_keras.config import Config, DataConfig, DecodeConfig, override
from t2t_keras.data.prepare import PreparedData
from t2t_keras.errors import InputError
from t2t_keras.models import presets
from t2t_keras.tasks.registry import task


def make_config(name: str, data: PreparedData, settings: Sequence[str] = ()) -> Config:
    """Returns the settings with which `launch.train --preset` starts a run on prepared data.

    The preset gets the sizes of the data's vocabulary, and the search settings that suit the data: those of its task,
    its unit of translation and, for small presets, its limit on the length of outputs. Unlike `launch.train`, the
    function does not set `train.static_shapes` for TPUs.

    Args:
        name: a preset, such as "tiny".
        data: the prepared data.
        settings: changes of the form "section.field=value", as for `--set`; the last change of a field counts.

    Raises:
        InputError: an unknown preset or setting, an invalid value, or a setting that the preparation determines.
    """
    config = presets.preset(name)
    decode = search_of_data(search_of_task(config.decode, data.config), data, settings, presets.is_small(name))
    return completed(dataclasses.replace(config, decode=decode), data, settings)


def search_of_task(decode: DecodeConfig, data: DataConfig) -> DecodeConfig:
    """Returns the search settings for a task, with lengths in tokens of the data."""
    decode = dataclasses.replace(decode, **task(data.task).decode)
    return dataclasses.replace(decode, max_length_offset=decode.max_length_offset * data.tokens_of_a_piece)


def search_of_data(
    decode: DecodeConfig, data: PreparedData, settings: Iterable[str], limits_output: bool
) -> DecodeConfig:
    """Returns search settings with the data's unit of translation.

    Args:
        decode: the search settings.
        data: the prepared data.
        settings: changes of the form "section.field=value".
        limits_output: whether the data also limits the length of outputs, unless a setting does.
    """
    decode = dataclasses.replace(decode, split=data.split_by)
    if not limits_output or any(setting.strip().startswith("decode.max_length_") for setting in settings):
        return decode
    return dataclasses.replace(decode, **data.output_limit)


def completed(config: Config, data: PreparedData, settings: Iterable[str]) -> Config:
    """Returns a configuration with changed settings, the data's settings, and the sizes of its vocabulary.

    Raises:
        InputError: an invalid setting, or one that the preparation determines.
    """
    settings = list(settings)
    for setting in settings:
        if setting.strip().startswith(("data.", "model.vocab_size", "model.source_vocab_size")):
            raise InputError(f"--set {setting}: launch.prepare_data determines this setting")
    config = override(config, settings)
    model = dataclasses.replace(config.model, **data.tokenizer.sizes)
    return dataclasses.replace(config, model=model, data=data.config)

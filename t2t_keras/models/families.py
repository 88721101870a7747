"""The families of models by name: which class makes a model from which settings."""

import pkgutil
from collections.abc import Callable
from typing import Any, cast

from t2t_keras.config.model_config import ModelConfig, model_config_class, register_config
from t2t_keras.errors import InputError
from t2t_keras.models.contract import SequenceModel

# The class that makes a model from its settings, as "module:class" if it is imported only when a model is made.
_MODELS: dict[str, str | Callable[[Any], SequenceModel]] = {
    "bytenet": "t2t_keras.baselines.bytenet.bytenet:ByteNet",
    "conv_s2s": "t2t_keras.baselines.conv_s2s.conv_s2s:ConvS2S",
    "moe_rnn": "t2t_keras.baselines.recurrent.moe_rnn:MoERNN",
    "rnn_attention": "t2t_keras.baselines.recurrent.rnn_attention:RNNAttention",
    "transformer": "t2t_keras.models.transformer:Transformer",
}


def register(config_class: type[ModelConfig], model: Callable[[Any], SequenceModel]) -> None:
    """Registers a family, so that its runs can be trained, searched, exported, served and described.

    Args:
        config_class: its settings, a frozen dataclass with its name in `family`.
        model: makes a model from them, a `keras.Model` that implements `SequenceModel`.

    Raises:
        ValueError: another family has that name.
    """
    register_config(config_class)
    _MODELS[config_class.family] = model


def make_model(config: ModelConfig) -> SequenceModel:
    """Makes and builds a freshly initialised model of any family; raises InputError if the family is not registered."""
    model_config_class(config.family)
    if config.family not in _MODELS:
        raise InputError(f"model.family {config.family!r} has settings, but no model: call `families.register`")
    model = _MODELS[config.family]
    if isinstance(model, str):
        model = cast(Callable[[Any], SequenceModel], pkgutil.resolve_name(model))
    made = model(config)
    made.build()
    if getattr(made, "losses", None):
        raise ValueError(f"{type(made).__name__} has losses of Keras's (regularisers), which training does not use")
    return made

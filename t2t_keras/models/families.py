"""The registry of model families, which makes models from their settings."""

import contextlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any, cast

import keras

from t2t_keras.config.model_config import ModelConfig, model_config_class, register_config
from t2t_keras.errors import InputError
from t2t_keras.models.contract import SequenceModel

# The model class of each family, or "module:class" for one that is imported when a model is made.
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
        config_class: the settings, a frozen dataclass with the family's name in `family`.
        model: makes a model from the settings, a `keras.Model` that implements `SequenceModel`.

    Raises:
        ValueError: a different family is registered under that name.
    """
    register_config(config_class)
    _MODELS[config_class.family] = model


def make_model(config: ModelConfig, dtype_policy: str = "float32") -> SequenceModel:
    """Makes and builds a freshly initialised model of any family.

    Its layers have the given Keras dtype policy, regardless of the default of the process or of keras.json.

    Raises:
        InputError: the family is unknown or has no model.
        ValueError: the model uses Keras losses such as regularisers.
    """
    model_config_class(config.family)
    if config.family not in _MODELS:
        raise InputError(f"model.family {config.family!r} has settings but no model; call `families.register`")
    model = _MODELS[config.family]
    if isinstance(model, str):
        model = cast(Callable[[Any], SequenceModel], pkgutil.resolve_name(model))
    with _defaults(dtype_policy):
        instance = model(config)
        instance.build()
    if getattr(instance, "losses", None):
        raise ValueError(f"{type(instance).__name__} has Keras losses (regularisers), which training does not use")
    return instance


@contextlib.contextmanager
def _defaults(dtype_policy: str) -> Iterator[None]:
    """Sets the default dtype policy of new layers, and float32 as the default dtype of numbers, within the block."""
    floatx, policy = keras.config.floatx(), keras.config.dtype_policy()
    if (floatx, policy.name) == ("float32", dtype_policy):
        yield
        return
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy(dtype_policy)
    try:
        yield
    finally:
        keras.config.set_floatx(floatx)
        keras.config.set_dtype_policy(policy)

"""The Transformer of "Attention Is All You Need" on TensorFlow and Keras 3.

A name is imported from where it lives when it is first asked for: the layers and the model need Keras alone, on
whatever backend, and only what trains, decodes or evaluates needs TensorFlow.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from t2t_keras import layers, losses, presets, schedules
    from t2t_keras.config import Config, DataConfig, DecodeConfig, ModelConfig, TrainConfig, TransformerConfig
    from t2t_keras.data.prepare import PreparedData, prepare
    from t2t_keras.decoding.explain import Explanation
    from t2t_keras.decoding.request import Request
    from t2t_keras.decoding.translation import Translation
    from t2t_keras.decoding.translator import Translator
    from t2t_keras.errors import InputError
    from t2t_keras.evaluation import Evaluation, evaluate
    from t2t_keras.model import Transformer
    from t2t_keras.run import Run, load_model
    from t2t_keras.streams import share_out_cores
    from t2t_keras.training.strategy import make_strategy
    from t2t_keras.training.trainer import Trainer

__all__ = [
    "Config",
    "DataConfig",
    "DecodeConfig",
    "Evaluation",
    "Explanation",
    "InputError",
    "ModelConfig",
    "PreparedData",
    "Request",
    "Run",
    "TrainConfig",
    "Trainer",
    "Transformer",
    "TransformerConfig",
    "Translation",
    "Translator",
    "evaluate",
    "layers",
    "load_model",
    "losses",
    "make_strategy",
    "prepare",
    "presets",
    "schedules",
    "share_out_cores",
]

# Of the project; setup.py reads it from here.
__version__ = "0.1.0"

_MODULES = ("layers", "losses", "presets", "schedules")
_HOMES = {
    **dict.fromkeys(
        ("Config", "DataConfig", "DecodeConfig", "ModelConfig", "TrainConfig", "TransformerConfig"), "config"
    ),
    **dict.fromkeys(("PreparedData", "prepare"), "data.prepare"),
    "Explanation": "decoding.explain",
    "Request": "decoding.request",
    "Translation": "decoding.translation",
    "Translator": "decoding.translator",
    "InputError": "errors",
    **dict.fromkeys(("Evaluation", "evaluate"), "evaluation"),
    "Transformer": "model",
    **dict.fromkeys(("Run", "load_model"), "run"),
    "make_strategy": "training.strategy",
    "share_out_cores": "streams",
    "Trainer": "training.trainer",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

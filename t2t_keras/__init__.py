"""The Transformer of "Attention Is All You Need" on TensorFlow and Keras 3.

Names are imported lazily, on first access. The layers and the model need only Keras, on any backend; TensorFlow is
imported only for training, decoding and evaluation.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from t2t_keras import layers, losses, schedules
    from t2t_keras.config import Config, DataConfig, DecodeConfig, ModelConfig, TrainConfig, TransformerConfig
    from t2t_keras.data.prepare import PreparedData, prepare
    from t2t_keras.errors import InputError
    from t2t_keras.evaluation import Evaluation, evaluate
    from t2t_keras.inference.explain import Explanation
    from t2t_keras.inference.request import Request
    from t2t_keras.inference.translation import Translation
    from t2t_keras.inference.translator import Translator
    from t2t_keras.inference.translator_settings import TranslatorSettings
    from t2t_keras.machine.streams import share_out_cores
    from t2t_keras.models import presets
    from t2t_keras.models.transformer import Transformer
    from t2t_keras.runs.load import load_model
    from t2t_keras.runs.run import Run, RunCheckpoint
    from t2t_keras.tasks.task import ScoringSettings
    from t2t_keras.training.devices.strategy import make_strategy
    from t2t_keras.training.new_config import make_config
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
    "RunCheckpoint",
    "ScoringSettings",
    "TrainConfig",
    "Trainer",
    "Transformer",
    "TransformerConfig",
    "Translation",
    "Translator",
    "TranslatorSettings",
    "evaluate",
    "layers",
    "load_model",
    "losses",
    "make_config",
    "make_strategy",
    "prepare",
    "presets",
    "schedules",
    "share_out_cores",
]

# The project's version; pyproject.toml reads it from here.
__version__ = "0.1.0"

_MODULES = {"layers": "layers", "losses": "losses", "presets": "models.presets", "schedules": "schedules"}
_HOMES = {
    **dict.fromkeys(
        ("Config", "DataConfig", "DecodeConfig", "ModelConfig", "TrainConfig", "TransformerConfig"), "config"
    ),
    **dict.fromkeys(("PreparedData", "prepare"), "data.prepare"),
    "Explanation": "inference.explain",
    "Request": "inference.request",
    "Translation": "inference.translation",
    "Translator": "inference.translator",
    "TranslatorSettings": "inference.translator_settings",
    "InputError": "errors",
    **dict.fromkeys(("Evaluation", "evaluate"), "evaluation"),
    "Transformer": "models.transformer",
    **dict.fromkeys(("Run", "RunCheckpoint"), "runs.run"),
    "ScoringSettings": "tasks.task",
    "load_model": "runs.load",
    "make_config": "training.new_config",
    "make_strategy": "training.devices.strategy",
    "share_out_cores": "machine.streams",
    "Trainer": "training.trainer",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{_MODULES[name]}")
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

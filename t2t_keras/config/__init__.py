"""All settings: frozen dataclasses that are stored as JSON."""

from t2t_keras.config.data_config import DataConfig
from t2t_keras.config.decode_config import DecodeConfig
from t2t_keras.config.layer_settings import LayerSettings
from t2t_keras.config.model_config import ModelConfig
from t2t_keras.config.run_config import SECTIONS, Config, differences, override
from t2t_keras.config.train_config import TrainConfig
from t2t_keras.config.transformer_config import TransformerConfig

__all__ = [
    "SECTIONS",
    "Config",
    "DataConfig",
    "DecodeConfig",
    "LayerSettings",
    "ModelConfig",
    "TrainConfig",
    "TransformerConfig",
    "differences",
    "override",
]

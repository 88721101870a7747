"""All settings, as frozen dataclasses that are stored as JSON."""

from t2t_keras.config.bytenet_config import ByteNetConfig
from t2t_keras.config.conv_s2s_config import ConvS2SConfig
from t2t_keras.config.data_config import DataConfig
from t2t_keras.config.decode_config import DecodeConfig
from t2t_keras.config.model_config import ModelConfig
from t2t_keras.config.moe_rnn_config import MoERNNConfig
from t2t_keras.config.rnn_attention_config import RNNAttentionConfig
from t2t_keras.config.run_config import SECTIONS, Config, differences, override
from t2t_keras.config.train_config import TrainConfig
from t2t_keras.config.transformer_config import TransformerConfig

__all__ = [
    "SECTIONS",
    "ByteNetConfig",
    "Config",
    "ConvS2SConfig",
    "DataConfig",
    "DecodeConfig",
    "MoERNNConfig",
    "ModelConfig",
    "RNNAttentionConfig",
    "TrainConfig",
    "TransformerConfig",
    "differences",
    "override",
]

"""A tiny model of every included family; a new family adds a line."""

import dataclasses
from typing import Any

from t2t_keras.baselines.bytenet.bytenet_config import ByteNetConfig
from t2t_keras.baselines.conv_s2s.conv_s2s_config import ConvS2SConfig
from t2t_keras.baselines.recurrent.moe_rnn_config import MoERNNConfig
from t2t_keras.baselines.recurrent.rnn_attention_config import RNNAttentionConfig
from t2t_keras.config import ModelConfig, TransformerConfig

SIZES: dict[str, Any] = {"vocab_size": 50, "d_model": 8}
LAYERS: dict[str, Any] = {"num_encoder_layers": 2, "num_decoder_layers": 2}
UNITS: dict[str, Any] = {"num_units": 8, "d_attention": 8}

# The only randomness in training is dropout, which replicas draw differently.
TINY: dict[str, ModelConfig] = {
    config.family: config
    for config in (
        ByteNetConfig(**SIZES, **LAYERS, dilation_rates=(1, 2)),
        ConvS2SConfig(**SIZES, d_output=6, encoder_layers="1x8x3,1x10x1", decoder_layers="1x8x3,1x10x2"),
        MoERNNConfig(**SIZES, **LAYERS, **UNITS, num_experts=4, experts_per_token=2, d_expert=8, gate_noise=False),
        RNNAttentionConfig(**SIZES, **LAYERS, **UNITS),
        TransformerConfig(**SIZES, **LAYERS, d_ff=16, num_heads=2),
    )
}


def tiny_family(family: str, **changes: Any) -> Any:
    """Returns the settings of a family's tiny model with some changes."""
    return dataclasses.replace(TINY[family], **changes)

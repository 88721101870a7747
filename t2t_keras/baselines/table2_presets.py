"""Presets for the systems of Table 2, each with a small version."""

from typing import Any

from t2t_keras.baselines.bytenet.bytenet_config import ByteNetConfig
from t2t_keras.baselines.conv_s2s.conv_s2s_config import ConvS2SConfig
from t2t_keras.baselines.recurrent.moe_rnn_config import MoERNNConfig
from t2t_keras.baselines.recurrent.rnn_attention_config import RNNAttentionConfig
from t2t_keras.config import Config, DecodeConfig, ModelConfig, TrainConfig


def _baseline(model: ModelConfig, train: dict[str, Any], decode: DecodeConfig | None = None) -> Config:
    """Returns the configuration of a system of Table 2, with some fields of the paper's training recipe changed."""
    return Config(model=model, train=TrainConfig(**train), decode=decode or DecodeConfig())


# The rate rises to 2e-4, 0.4048 * (1024 * 4000)^-0.5, and stays there until update 60,000. Wu et al. then switched to
# stochastic gradient descent; here Adam continues, with a rate that falls with the inverse square root of the step.
_GNMT_TRAIN = {
    "tokens_per_batch": 4096,
    "max_steps": 300000,
    "learning_rate_scale": 0.4048,
    "hold_steps": 56000,
    "adam_beta2": 0.999,
    "adam_epsilon": 1e-8,
    "label_smoothing": 0.0,
    "clip_norm": 5.0,
}
_DEEP_ATT: dict[str, Any] = {"encoder": "alternating_columns", "connections": "fast_forward"}
_RNN_TINY: dict[str, Any] = {
    "d_model": 256,
    "num_encoder_layers": 3,
    "num_decoder_layers": 3,
    "num_units": 256,
    "d_attention": 256,
    "dropout_rate": 0.3,
    "tie_embeddings": True,
}
# The rate rises to 0.001 in 1,000 updates: 0.506 * (256 * 1000)^-0.5.
_TINY_TRAIN = {
    "tokens_per_batch": 2048,
    "learning_rate_scale": 0.506,
    "warmup_steps": 1000,
    "checkpoint_steps": 200,
    "keep_checkpoints": 10,
    "patience": 10,
}
_RNN_TINY_TRAIN = {**_TINY_TRAIN, "max_steps": 6000, "clip_norm": 5.0}

# Gehring et al. trained with Nesterov momentum of 0.99 at a rate of 0.25, divided by 10 when validation stalls. Here
# this project's Adam is used, with their clipping. The rate rises to 5e-4: 0.876 * (768 * 4000)^-0.5.
_CONV_TRAIN = {"learning_rate_scale": 0.876, "label_smoothing": 0.0, "clip_norm": 0.1}
_CONV_TINY_TRAIN = {**_TINY_TRAIN, "max_steps": 8000, "clip_norm": 0.1}
# Shazeer et al. trained with about 16,000 words on each of up to 64 GPUs. In 2,000 updates the rate rises to 0.001,
# 1.012 * (512 * 2000)^-0.5. It stays there for 8,000, and then falls with the inverse square root of the step.
_MOE_TRAIN = {
    "tokens_per_batch": 1024000,
    "learning_rate_scale": 1.012,
    "warmup_steps": 2000,
    "hold_steps": 8000,
    "adam_beta2": 0.999,
    "adam_epsilon": 1e-8,
    "label_smoothing": 0.0,
}
# Wu et al. found these penalties best, with 8 to 12 hypotheses.
_GNMT_DECODE = DecodeConfig(beam_size=8, length_penalty=0.2, coverage_penalty=0.2)
_CONV_DECODE = DecodeConfig(beam_size=5, length_normalization="average")

PRESETS: dict[str, Config] = {
    # GNMT for English to German, and Deep-Att, whose paper has vocabularies of words. The small versions follow.
    "gnmt": _baseline(RNNAttentionConfig(vocab_size=32000, dropout_rate=0.3), _GNMT_TRAIN, _GNMT_DECODE),
    "deep_att": _baseline(
        RNNAttentionConfig(
            **_DEEP_ATT,
            d_model=256,
            num_units=512,
            num_encoder_layers=9,
            num_decoder_layers=7,
            d_memory=1280,
            d_attention=512,
            dropout_rate=0.1,
        ),
        # With a d_model of 256, half the scale gives the same rate.
        {**_GNMT_TRAIN, "learning_rate_scale": 0.2024, "hold_steps": 0},
    ),
    "rnn_tiny": _baseline(RNNAttentionConfig(**_RNN_TINY), _RNN_TINY_TRAIN),
    "deep_att_tiny": _baseline(RNNAttentionConfig(**_RNN_TINY, **_DEEP_ATT, d_memory=256), _RNN_TINY_TRAIN),
    # ConvS2S for English to German, and a small version for IWSLT 2014, both with the blocks of the released code.
    "conv_s2s": _baseline(ConvS2SConfig(), _CONV_TRAIN, _CONV_DECODE),
    "conv_tiny": _baseline(
        ConvS2SConfig(
            d_model=256,
            d_output=None,
            encoder_layers="4x256x3",
            decoder_layers="3x256x3",
            dropout_rate=0.3,
            tie_embeddings=True,
        ),
        _CONV_TINY_TRAIN,
        _CONV_DECODE,
    ),
    # ByteNet for English to German, with about as many entries as a character vocabulary has, and a small version.
    "bytenet": _baseline(
        ByteNetConfig(vocab_size=512),
        {
            "max_steps": 300000,
            "schedule": "constant",
            "learning_rate_scale": 3e-4,
            "adam_beta2": 0.999,
            "adam_epsilon": 1e-8,
            "label_smoothing": 0.0,
        },
        DecodeConfig(beam_size=12, length_normalization="none"),
    ),
    "bytenet_tiny": _baseline(
        ByteNetConfig(d_model=128, num_encoder_layers=10, num_decoder_layers=10, dropout_rate=0.2, tie_embeddings=True),
        # The rate rises to 0.001 in 1,000 updates: 0.3578 * (128 * 1000)^-0.5.
        {**_TINY_TRAIN, "tokens_per_batch": 4096, "max_steps": 5000, "learning_rate_scale": 0.3578},
    ),
    # MoE with 32 experts, and a small version, whose rate rises to 0.001 too: 0.3578 * (128 * 1000)^-0.5. Its matrices
    # are not tied: residual connections carry an input token's embedding to the projection to the vocabulary, so a tied
    # model would begin by predicting that token again.
    "moe": _baseline(MoERNNConfig(vocab_size=32000), _MOE_TRAIN),
    "moe_rnn_tiny": _baseline(
        MoERNNConfig(
            d_model=128,
            num_units=512,
            d_attention=128,
            num_experts=8,
            experts_per_token=2,
            d_expert=512,
            dropout_rate=0.3,
        ),
        {**_RNN_TINY_TRAIN, "learning_rate_scale": 0.3578},
    ),
}

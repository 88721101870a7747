"""Configurations by name: the paper's models, T2T's, small ones, every row of Table 3, and the systems of Table 2."""

import dataclasses
from typing import Any

from t2t_keras.config import (
    ByteNetConfig,
    Config,
    ConvS2SConfig,
    DecodeConfig,
    ModelConfig,
    MoERNNConfig,
    RNNAttentionConfig,
    TrainConfig,
    TransformerConfig,
)
from t2t_keras.errors import InputError


def _other(model: ModelConfig, train: dict[str, Any], decode: DecodeConfig | None = None) -> Config:
    """A system of Table 2, with some fields of the paper's recipe changed."""
    return Config(model=model, train=TrainConfig(**train), decode=decode or DecodeConfig())


def _base(model: dict[str, Any] | None = None, train: dict[str, Any] | None = None) -> Config:
    """The paper's base model and recipe with some fields changed."""
    return Config(model=TransformerConfig(**(model or {})), train=TrainConfig(**(train or {})))


# Sizes and recipe of the Transformer-Tiny of Wu et al. (2021), except that theirs is post-norm: at this rate, our
# post-norm encoder came to give all tokens of a sentence the same state. The scale makes the peak rate 0.005 after
# 2,000 steps: 0.005 * sqrt(128 * 2000).
_TINY_MODEL: dict[str, Any] = {
    "num_encoder_layers": 4,
    "num_decoder_layers": 4,
    "d_model": 128,
    "d_ff": 256,
    "num_heads": 4,
    "dropout_rate": 0.3,
    "norm_position": "pre",
}
_TINY_TRAIN = {
    "tokens_per_batch": 4096,
    "max_steps": 8000,
    "learning_rate_scale": 2.53,
    "warmup_steps": 2000,
    "checkpoint_steps": 200,
    "keep_checkpoints": 10,
    "patience": 10,
}
_BIG_SIZES = {"d_model": 1024, "d_ff": 4096, "num_heads": 16}
_T2T_MODEL = {
    "norm_position": "pre",
    "position_encoding": "sinusoidal_halves",
    "use_attention_bias": False,
    "attention_dropout_rate": 0.1,
    "relu_dropout_rate": 0.1,
}
# 4,096 tokens on each of 8 GPUs.
_T2T_TRAIN = {
    "tokens_per_batch": 32768,
    "max_steps": 250000,
    "learning_rate_scale": 2.0,
    "warmup_steps": 8000,
    "adam_beta2": 0.997,
    "keep_checkpoints": 20,
}

# The rate rises to 2e-4, 0.4048 * (1024 * 4000)^-0.5, and stays for 60,000 updates in all. Wu et al. went on with
# stochastic gradient descent; here Adam goes on, its rate falling with the root of the step.
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
_RNN_TINY_TRAIN = {
    "tokens_per_batch": 2048,
    "max_steps": 6000,
    "learning_rate_scale": 0.506,
    "warmup_steps": 1000,
    "clip_norm": 5.0,
    "checkpoint_steps": 200,
    "keep_checkpoints": 10,
    "patience": 10,
}

# Gehring et al. trained with Nesterov's momentum of 0.99 at a rate of 0.25, divided by 10 when validation stalls; here
# this project's Adam does. Clipping is theirs. The rate rises to 5e-4: 0.876 * (768 * 4000)^-0.5.
_CONV_TRAIN = {"learning_rate_scale": 0.876, "label_smoothing": 0.0, "clip_norm": 0.1}
# The rate rises to 0.001 in 1,000 updates: 0.506 * (256 * 1000)^-0.5.
_CONV_TINY_TRAIN = {
    "tokens_per_batch": 2048,
    "max_steps": 8000,
    "learning_rate_scale": 0.506,
    "warmup_steps": 1000,
    "clip_norm": 0.1,
    "checkpoint_steps": 200,
    "keep_checkpoints": 10,
    "patience": 10,
}
# Shazeer et al. had about 16,000 words on each of up to 64 GPUs. The rate rises for 2,000 updates to 0.001,
# 1.012 * (512 * 2000)^-0.5, stays for 8,000, and falls with the root of the step after that.
_MOE_TRAIN = {
    "tokens_per_batch": 1024000,
    "learning_rate_scale": 1.012,
    "warmup_steps": 2000,
    "hold_steps": 8000,
    "adam_beta2": 0.999,
    "adam_epsilon": 1e-8,
    "label_smoothing": 0.0,
}
# Section 6.3 gives 4 layers, their width and the search. Dropout and updates are ours: the paper chose the first on
# validation data and says nothing of the second.
_PARSING: dict[str, Any] = {
    **_BIG_SIZES,
    "num_encoder_layers": 4,
    "num_decoder_layers": 4,
    "dropout_rate": 0.3,
    "attention_dropout_rate": 0.1,
}
# For two cores and some hours. The rate rises to 0.002 in 1,000 updates: 1.012 * (256 * 1000)^-0.5.
_PARSING_SMALL_TRAIN = {
    "tokens_per_batch": 4096,
    "max_steps": 10000,
    "learning_rate_scale": 1.012,
    "warmup_steps": 1000,
    "checkpoint_steps": 200,
    "keep_checkpoints": 10,
}
_PARSING_DECODE = DecodeConfig(beam_size=21, length_penalty=0.3, max_length_offset=300)

# Wu et al. found these best, with 8 to 12 hypotheses.
_GNMT_DECODE = DecodeConfig(beam_size=8, length_penalty=0.2, coverage_penalty=0.2)
_CONV_DECODE = DecodeConfig(beam_size=5, length_normalization="average")

PRESETS: dict[str, Config] = {
    "tiny": _base(_TINY_MODEL, _TINY_TRAIN),
    "base": _base(),
    "big": _base({**_BIG_SIZES, "dropout_rate": 0.3}, {"max_steps": 300000, "keep_checkpoints": 20}),
    "t2t_base": _base(_T2T_MODEL, _T2T_TRAIN),
    "t2t_big": _base({**_T2T_MODEL, **_BIG_SIZES, "dropout_rate": 0.3}, {**_T2T_TRAIN, "max_steps": 300000}),
    # Table 3: one change to base per row.
    "table3_a_h1": _base({"num_heads": 1}),
    "table3_a_h4": _base({"num_heads": 4}),
    "table3_a_h16": _base({"num_heads": 16}),
    "table3_a_h32": _base({"num_heads": 32}),
    "table3_b_dk16": _base({"d_key": 16}),
    "table3_b_dk32": _base({"d_key": 32}),
    "table3_c_n2": _base({"num_encoder_layers": 2, "num_decoder_layers": 2}),
    "table3_c_n4": _base({"num_encoder_layers": 4, "num_decoder_layers": 4}),
    "table3_c_n8": _base({"num_encoder_layers": 8, "num_decoder_layers": 8}),
    "table3_c_d256": _base({"d_model": 256}),
    "table3_c_d1024": _base({"d_model": 1024}),
    "table3_c_ff1024": _base({"d_ff": 1024}),
    "table3_c_ff4096": _base({"d_ff": 4096}),
    "table3_d_dropout0": _base({"dropout_rate": 0.0}),
    "table3_d_dropout2": _base({"dropout_rate": 0.2}),
    "table3_d_smoothing0": _base(train={"label_smoothing": 0.0}),
    "table3_d_smoothing2": _base(train={"label_smoothing": 0.2}),
    "table3_e_learned": _base({"position_encoding": "learned"}),
    # The experts of a token compute as much as tiny's feed-forward network.
    "moe_tiny": _base({**_TINY_MODEL, "num_experts": 8, "experts_per_token": 2, "d_expert": 128}, _TINY_TRAIN),
    # Table 4: constituency parsing, and a small model for it.
    "parsing": dataclasses.replace(
        _base(_PARSING, {"max_steps": 30000, "keep_checkpoints": 20}),
        decode=_PARSING_DECODE,
    ),
    "parsing_small": dataclasses.replace(
        _base(
            {
                "num_encoder_layers": 3,
                "num_decoder_layers": 3,
                "d_model": 256,
                "d_ff": 1024,
                "num_heads": 4,
                "dropout_rate": 0.3,
                "norm_position": "pre",
            },
            _PARSING_SMALL_TRAIN,
        ),
        decode=_PARSING_DECODE,
    ),
    # Table 2: GNMT for English to German, and Deep-Att, whose paper trains word embeddings; each beside a small one.
    "gnmt": _other(RNNAttentionConfig(vocab_size=32000, dropout_rate=0.3), _GNMT_TRAIN, _GNMT_DECODE),
    "deep_att": _other(
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
        # At d_model 256 the same rate takes half the scale.
        {**_GNMT_TRAIN, "learning_rate_scale": 0.2024, "hold_steps": 0},
    ),
    "rnn_tiny": _other(RNNAttentionConfig(**_RNN_TINY), _RNN_TINY_TRAIN),
    "deep_att_tiny": _other(RNNAttentionConfig(**_RNN_TINY, **_DEEP_ATT, d_memory=256), _RNN_TINY_TRAIN),
    # ConvS2S for English to German, with the blocks of the released code, and a small one: that code's for IWSLT 2014.
    "conv_s2s": _other(ConvS2SConfig(), _CONV_TRAIN, _CONV_DECODE),
    "conv_tiny": _other(
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
    # ByteNet for English to German, with about as many entries as a vocabulary of characters has, and a small one.
    "bytenet": _other(
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
    "bytenet_tiny": _other(
        ByteNetConfig(
            d_model=128,
            num_encoder_layers=10,
            num_decoder_layers=10,
            dropout_rate=0.2,
            tie_embeddings=True,
        ),
        # The rate rises to 0.001 in 1,000 updates: 0.3578 * (128 * 1000)^-0.5.
        {
            "tokens_per_batch": 4096,
            "max_steps": 5000,
            "learning_rate_scale": 0.3578,
            "warmup_steps": 1000,
            "checkpoint_steps": 200,
            "keep_checkpoints": 10,
            "patience": 10,
        },
    ),
    # MoE with 32 experts, and a small one, whose rate rises to 0.001 too: 0.3578 * (128 * 1000)^-0.5. Its matrices are
    # not tied: added to what every layer makes of it, a token's own row would begin by predicting that token again.
    "moe": _other(MoERNNConfig(vocab_size=32000), _MOE_TRAIN),
    "moe_rnn_tiny": _other(
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

# Made for small machines: their runs take the limit of an output from their text. Published models keep the source's
# length and 50 tokens (section 6.1 of the paper).
SMALL = frozenset(
    {
        *("tiny", "moe_tiny", "parsing_small"),
        *("rnn_tiny", "deep_att_tiny", "conv_tiny", "bytenet_tiny", "moe_rnn_tiny"),
    }
)


def preset(name: str) -> Config:
    """Returns the configuration of a preset such as "base"; an unknown name raises InputError with the known ones."""
    if name not in PRESETS:
        raise InputError(f"unknown preset {name!r}; valid: {', '.join(PRESETS)}")
    return PRESETS[name]

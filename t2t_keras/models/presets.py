"""Named configurations: models of the paper and of T2T (tensor2tensor), small models, and rows of Tables 2 and 3."""

import importlib
from typing import Any

from t2t_keras.config import Config, DecodeConfig, TrainConfig, TransformerConfig
from t2t_keras.errors import InputError


def _base(
    model: dict[str, Any] | None = None, train: dict[str, Any] | None = None, decode: DecodeConfig | None = None
) -> Config:
    """The paper's base model and recipe with some fields changed."""
    return Config(
        model=TransformerConfig(**(model or {})), train=TrainConfig(**(train or {})), decode=decode or DecodeConfig()
    )


# Sizes and recipe of Transformer-Tiny (Wu et al., 2021), but pre-norm instead of post-norm: at this learning rate, the
# post-norm encoder collapsed to the same state for all tokens of a sentence. The scale, 0.005 * sqrt(128 * 2000), makes
# the rate peak at 0.005 after 2,000 steps.
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

# Section 6.3 states the number of layers, d_model and the search settings. Heads and d_ff are the same as in big.
# Dropout, learning rate and number of updates are this project's choice: the paper tuned the first two on validation
# data and does not state the third.
_PARSING: dict[str, Any] = {
    **_BIG_SIZES,
    "num_encoder_layers": 4,
    "num_decoder_layers": 4,
    "dropout_rate": 0.3,
    "attention_dropout_rate": 0.1,
}
_PARSING_SMALL: dict[str, Any] = {
    **_TINY_MODEL,
    **{"num_encoder_layers": 3, "num_decoder_layers": 3, "d_model": 256, "d_ff": 1024},
}
# Sized for a few hours on two cores. The rate rises to 0.002 in 1,000 updates: 1.012 * (256 * 1000)^-0.5.
_PARSING_SMALL_TRAIN = {
    "tokens_per_batch": 4096,
    "max_steps": 10000,
    "learning_rate_scale": 1.012,
    "warmup_steps": 1000,
    "checkpoint_steps": 200,
    "keep_checkpoints": 10,
}
_PARSING_DECODE = DecodeConfig(beam_size=21, length_penalty=0.3, max_length_offset=300)

# The systems of Table 2, and a small version of each.
_TABLE2 = (
    *("gnmt", "deep_att", "rnn_tiny", "deep_att_tiny", "conv_s2s", "conv_tiny", "bytenet", "bytenet_tiny"),
    *("moe", "moe_rnn_tiny"),
)

# A configuration, or the module whose `PRESETS` contains it; the module is imported on first use.
PRESETS: dict[str, Config | str] = {
    "tiny": _base(_TINY_MODEL, _TINY_TRAIN),
    "base": _base(),
    "big": _base({**_BIG_SIZES, "dropout_rate": 0.3}, {"max_steps": 300000, "keep_checkpoints": 20}),
    "t2t_base": _base(_T2T_MODEL, _T2T_TRAIN),
    # 2,048 tokens on each GPU.
    "t2t_big": _base(
        {**_T2T_MODEL, **_BIG_SIZES, "dropout_rate": 0.3},
        {**_T2T_TRAIN, "tokens_per_batch": 16384, "max_steps": 300000},
    ),
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
    # The two experts of a token together are as wide as tiny's feed-forward network.
    "moe_tiny": _base({**_TINY_MODEL, "num_experts": 8, "experts_per_token": 2, "d_expert": 128}, _TINY_TRAIN),
    # Table 4: constituency parsing, and a small model for it.
    "parsing": _base(_PARSING, {"max_steps": 30000, "keep_checkpoints": 20}, _PARSING_DECODE),
    "parsing_small": _base(_PARSING_SMALL, _PARSING_SMALL_TRAIN, _PARSING_DECODE),
    **dict.fromkeys(_TABLE2, "t2t_keras.baselines.table2_presets"),
}


def is_small(name: str) -> bool:
    """Returns whether a preset is for small machines: its name ends in "tiny" or "small".

    Runs of these presets derive the output limit from their text. The other presets keep their own limit; for the
    paper's models, it is the source length plus 50 tokens (section 6.1).
    """
    return name.endswith(("tiny", "small"))


def preset(name: str) -> Config:
    """Returns the configuration of a preset such as "base"; raises InputError with the valid names otherwise."""
    if name not in PRESETS:
        raise InputError(f"unknown preset {name!r}; valid: {', '.join(PRESETS)}")
    entry = PRESETS[name]
    if isinstance(entry, str):
        entry = PRESETS[name] = importlib.import_module(entry).PRESETS[name]
    return entry

"""Presets by name: the paper's models, T2T's models, and the changes of each row of Table 3."""

import pytest

from t2t_keras.config import Config, TrainConfig, TransformerConfig, differences
from t2t_keras.models.presets import PRESETS, is_small, preset

TABLE_3 = {
    "table3_a_h1": {"model.num_heads: 8 -> 1"},
    "table3_a_h4": {"model.num_heads: 8 -> 4"},
    "table3_a_h16": {"model.num_heads: 8 -> 16"},
    "table3_a_h32": {"model.num_heads: 8 -> 32"},
    "table3_b_dk16": {"model.d_key: None -> 16"},
    "table3_b_dk32": {"model.d_key: None -> 32"},
    "table3_c_n2": {"model.num_encoder_layers: 6 -> 2", "model.num_decoder_layers: 6 -> 2"},
    "table3_c_n4": {"model.num_encoder_layers: 6 -> 4", "model.num_decoder_layers: 6 -> 4"},
    "table3_c_n8": {"model.num_encoder_layers: 6 -> 8", "model.num_decoder_layers: 6 -> 8"},
    "table3_c_d256": {"model.d_model: 512 -> 256"},
    "table3_c_d1024": {"model.d_model: 512 -> 1024"},
    "table3_c_ff1024": {"model.d_ff: 2048 -> 1024"},
    "table3_c_ff4096": {"model.d_ff: 2048 -> 4096"},
    "table3_d_dropout0": {"model.dropout_rate: 0.1 -> 0.0"},
    "table3_d_dropout2": {"model.dropout_rate: 0.1 -> 0.2"},
    "table3_d_smoothing0": {"train.label_smoothing: 0.1 -> 0.0"},
    "table3_d_smoothing2": {"train.label_smoothing: 0.1 -> 0.2"},
    "table3_e_learned": {"model.position_encoding: 'sinusoidal' -> 'learned'"},
}


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_a_valid_configuration(name):
    config = preset(name)
    assert isinstance(config, Config)
    assert Config.from_dict(config.to_dict()) == config


def test_every_row_of_table_3_is_there():
    assert {name for name in PRESETS if name.startswith("table3_")} == set(TABLE_3)


def test_only_small_models_learn_the_output_limit_from_their_text():
    others = {"rnn_tiny", "deep_att_tiny", "conv_tiny", "bytenet_tiny", "moe_rnn_tiny"}
    small = {"tiny", "moe_tiny", "parsing_small", *others}
    assert {name for name in PRESETS if is_small(name)} == small
    decodes = {name: preset(name).decode for name in PRESETS}
    limits = {name: (decode.max_length_factor, decode.max_length_offset) for name, decode in decodes.items()}
    assert {limits[name] for name in PRESETS.keys() - small - {"parsing"}} == {(1.0, 50)}


@pytest.mark.parametrize(("name", "changes"), TABLE_3.items())
def test_a_row_of_table_3_is_base_with_its_change(name, changes):
    assert set(differences(preset("base"), preset(name))) == changes


def test_base_is_the_papers():
    model, train = preset("base").model, preset("base").train
    assert model == TransformerConfig()
    assert (model.num_encoder_layers, model.num_decoder_layers, model.d_model, model.d_ff) == (6, 6, 512, 2048)
    assert (model.num_heads, model.dropout_rate, model.norm_position) == (8, 0.1, "post")
    assert (model.attention_dropout_rate, model.relu_dropout_rate) == (0.0, 0.0)
    assert model.position_encoding == "sinusoidal"
    assert model.tie_embeddings
    assert train == TrainConfig()
    assert (train.tokens_per_batch, train.max_steps, train.warmup_steps) == (25000, 100_000, 4000)
    assert (train.adam_beta1, train.adam_beta2, train.adam_epsilon) == (0.9, 0.98, 1e-9)
    assert (train.label_smoothing, train.learning_rate_scale, train.keep_checkpoints) == (0.1, 1.0, 5)


def test_big_is_the_papers():
    model, train = preset("big").model, preset("big").train
    assert (model.d_model, model.d_ff, model.num_heads, model.dropout_rate) == (1024, 4096, 16, 0.3)
    assert (train.max_steps, train.keep_checkpoints) == (300_000, 20)


@pytest.mark.parametrize(("name", "sizes_of"), [("t2t_base", "base"), ("t2t_big", "big")])
def test_t2t_presets_follow_t2t(name, sizes_of):
    model, train, paper = preset(name).model, preset(name).train, preset(sizes_of).model
    for field in ("num_encoder_layers", "num_decoder_layers", "d_model", "d_ff", "num_heads", "dropout_rate"):
        assert getattr(model, field) == getattr(paper, field)
    assert (model.norm_position, model.position_encoding) == ("pre", "sinusoidal_halves")
    assert (model.attention_dropout_rate, model.relu_dropout_rate) == (0.1, 0.1)
    assert not model.use_attention_bias
    assert (train.adam_beta2, train.learning_rate_scale, train.warmup_steps) == (0.997, 2.0, 8000)
    assert train.tokens_per_batch == 8 * (2048 if name == "t2t_big" else 4096)


def test_moe_tiny_is_tiny_with_experts_of_the_same_cost():
    tiny, experts = preset("tiny"), preset("moe_tiny")
    assert experts.train == tiny.train
    assert {change.partition(":")[0] for change in differences(tiny, experts)} == {
        f"model.{name}" for name in ("num_experts", "experts_per_token", "d_expert")
    }
    flops = [sum(config.model.training_flops(16).values()) for config in (tiny, experts)]
    assert flops[0] < flops[1] < 1.02 * flops[0]


def test_gnmt_has_the_size_that_its_paper_reports():
    assert sum(preset("gnmt").model.parameter_counts().values()) == pytest.approx(278e6, rel=0.02)


def test_conv_s2s_has_the_size_of_the_released_code():
    """Its encoder and decoder have 125,997,056 parameters; its embeddings depend on the vocabularies."""
    model = preset("conv_s2s").model
    counts = model.parameter_counts()
    assert counts["encoder"] + counts["decoder"] == 53_406_208 + 72_590_848
    assert [len(model.encoder_blocks()), len(model.decoder_blocks()), model.d_output] == [15, 15, 512]


@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("gnmt", 2e-4),
        ("deep_att", 2e-4),
        ("rnn_tiny", 1e-3),
        ("conv_s2s", 5e-4),
        ("conv_tiny", 1e-3),
        ("moe", 1e-3),
        ("moe_rnn_tiny", 1e-3),
    ],
)
def test_learning_rates_of_the_systems_of_table_2(name, rate):
    model, train = preset(name).model, preset(name).train
    assert train.learning_rate_scale * (model.d_model * train.warmup_steps) ** -0.5 == pytest.approx(rate, rel=1e-3)


def test_bytenet_follows_kalchbrenner_et_al():
    config = preset("bytenet")
    assert (config.train.schedule, config.train.learning_rate_scale) == ("constant", 3e-4)
    assert (config.model.dilation_rates, config.model.unfolding_factor) == ((1, 2, 4, 8, 16), 1.2)
    assert (config.model.num_encoder_layers, config.model.num_decoder_layers, config.model.d_model) == (30, 30, 800)
    assert (config.decode.beam_size, config.decode.length_normalization) == (12, "none")
    assert sum(config.model.parameter_counts().values()) == 273_584_512  # docs/models.md

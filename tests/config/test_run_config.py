import dataclasses
import inspect
import json

import numpy as np
import pytest

from t2t_keras.config import (
    SECTIONS,
    Config,
    DataConfig,
    DecodeConfig,
    TrainConfig,
    TransformerConfig,
    differences,
    override,
)
from t2t_keras.errors import InputError


def test_configurations_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().model.d_model = 3


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (TransformerConfig, {"position_encoding": "rotary"}, "model.position_encoding must be one of sinusoidal, "),
        (TransformerConfig, {"tie_embeddings": "false"}, "model.tie_embeddings must be true or false, got 'false'"),
        (TransformerConfig, {"d_ff": 64.5}, "model.d_ff must be a whole number of at least 1, got 64.5"),
        (DecodeConfig, {"beam_size": "4"}, "decode.beam_size must be a whole number of at least 1, got '4'"),
        (DecodeConfig, {"length_normalization": "mean"}, "decode.length_normalization must be one of gnmt, "),
        (TrainConfig, {"clip_norm": "1"}, "train.clip_norm must be a finite number of at least 0, got '1'"),
        (DataConfig, {"vocab_type": "words"}, "data.vocab_type must be one of bpe, "),
        (
            DataConfig,
            {"truecase": True, "lowercase": "both"},
            "data.truecase=true cannot be combined with data.lowercase=both",
        ),
    ],
)
def test_settings_from_python_are_checked_like_those_from_files(kind, values, message):
    with pytest.raises(InputError, match=message):
        kind(**values)


def test_numbers_of_numpy_are_valid():
    assert TransformerConfig(d_ff=np.int64(64), dropout_rate=np.float32(0.5)).d_ff == 64
    for weights in (np.array([1, 2]), np.array([1.0, 2.0]), (np.float32(1), np.int64(2)), [np.array(1.0), 2]):
        assert TrainConfig(corpus_weights=weights).corpus_weights == (1.0, 2.0)
    with pytest.raises(InputError, match=r"train\.corpus_weights must be a list, got 1\.0"):
        TrainConfig(corpus_weights=np.float32(1))
    assert DecodeConfig(length_penalty=1, max_length_factor=0).length_penalty == 1


def test_settings_are_stored_as_json_types():
    """NumPy numbers and lists are converted, so that a configuration equals its copy from JSON."""
    config = Config(
        model=TransformerConfig(vocab_size=np.int64(9), dropout_rate=np.float32(0.5)),
        train=TrainConfig(frozen=["encoder/*"], max_steps=np.int64(4)),
        data=DataConfig(symbols=["<2fr>"]),
    )
    assert Config.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert hash(config.train) == hash(TrainConfig(frozen=("encoder/*",), max_steps=4))


def test_every_field_is_described():
    for section in SECTIONS:
        kind = type(getattr(Config(), section))
        described = "".join(inspect.cleandoc(base.__doc__ or "") for base in kind.__mro__)
        for field in dataclasses.fields(kind):
            assert f"\n    {field.name}: " in described


def test_a_json_round_trip_is_lossless():
    config = override(
        Config(), ["model.d_key=16", "train.max_minutes=1.5", "data.lowercase=source", "decode.beam_size=1"]
    )
    assert Config.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_the_lowercase_setting_of_earlier_versions_is_read():
    modes = [Config.from_dict({"data": {"lowercase": value}}).data.lowercase for value in (False, True)]
    assert modes == ["none", "both"]


def test_a_missing_field_keeps_its_default():
    assert Config.from_dict({"model": {"d_ff": 64}}) == Config(model=TransformerConfig(d_ff=64))


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"modle": {}}, "unknown section 'modle' in a configuration; valid: model, data, train, decode"),
        ({"model": {"depth": 6}}, "unknown setting model.depth; valid: model.vocab_size, "),
        ({"model": {"d_ff": "64"}}, "model.d_ff must be a whole number of at least 1, got '64'"),
        ({"model": {"d_ff": 64.0}}, "model.d_ff must be a whole number of at least 1, got 64.0"),
        ({"model": {"d_ff": True}}, "model.d_ff must be a whole number of at least 1, got True"),
        ({"model": {"tie_embeddings": 1}}, "model.tie_embeddings must be true or false, got 1"),
        ({"model": {"norm_position": "mid"}}, "model.norm_position must be one of post, pre; got 'mid'"),
    ],
)
def test_invalid_json_is_rejected(values, complaint):
    with pytest.raises(InputError) as error:
        Config.from_dict(values)
    assert str(error.value).startswith(complaint)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("model.d_model=64", 64),
        ("model.d_key=16", 16),
        ("model.d_key=none", None),
        ("model.dropout_rate=0", 0.0),
        ("model.dropout_rate= 3e-1 ", 0.3),
        ("model.norm_position=pre", "pre"),
        ("model.tie_embeddings=false", False),
        ("model.tie_embeddings=1", True),
        ("train.mixed_bfloat16=True", True),
        ("train.max_steps=8000", 8000),
        ("data.corpus=tfds:wmt14", "tfds:wmt14"),
        ("data.source_language=a=b", "a=b"),
    ],
)
def test_a_setting_takes_the_type_of_its_field(setting, value):
    section, _, name = setting.partition("=")[0].partition(".")
    actual = getattr(getattr(override(Config(), [setting]), section), name)
    assert (actual, type(actual)) == (value, type(value))


def test_settings_apply_in_order_and_together():
    config = override(Config(), ["train.max_steps=3", "train.max_steps=4"])
    assert config.train.max_steps == 4
    # 10 heads divide the new width but not the old one. Both orders of these settings are valid.
    for settings in (["model.num_heads=10", "model.d_model=640"], ["model.d_model=640", "model.num_heads=10"]):
        assert override(Config(), settings).model.num_heads == 10


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("train.max_steps", "--set 'train.max_steps': expected section.field=value"),
        ("max_steps=3", "--set 'max_steps=3': expected section.field=value"),
        ("training.max_steps=3", "unknown section 'training' in training.max_steps; valid: model, data, train, decode"),
        ("train.steps=3", "unknown setting train.steps; valid: train.tokens_per_batch, "),
        ("train.max_steps=many", "train.max_steps must be a whole number of at least 1, got 'many'"),
        ("train.max_steps=2.5", "train.max_steps must be a whole number of at least 1, got '2.5'"),
        ("train.max_steps=", "train.max_steps must be a whole number of at least 1, got ''"),
        ("train.max_steps=none", "train.max_steps must be a whole number of at least 1, got 'none'"),
        ("model.dropout_rate=low", "model.dropout_rate must be a number in [0, 1), got 'low'"),
        ("model.tie_embeddings=maybe", "model.tie_embeddings must be true or false, got 'maybe'"),
        (
            "model.position_encoding=none",
            "model.position_encoding must be one of sinusoidal, sinusoidal_halves, learned",
        ),
        ("model.d_model=63", "model.d_model must be even"),
        ("model.num_heads=7", "model.num_heads=7 does not divide model.d_model=512; set model.d_key and model.d_value"),
        ("model.d_ff=0", "model.d_ff must be a whole number of at least 1, got 0"),
        ("model.num_experts=-1", "model.num_experts must be a whole number of at least 0, got -1"),
        ("model.num_experts=3", "model.experts_per_token=4 is more than model.num_experts=3"),
        ("model.d_key=-1", "model.d_key must be None or a whole number of at least 1, got -1"),
        ("model.dropout_rate=1", "model.dropout_rate must be a number in [0, 1), got 1.0"),
        ("model.dropout_rate=nan", "model.dropout_rate must be a number in [0, 1), got nan"),
        ("data.max_length=0", "data.max_length must be a whole number of at least 1, got 0"),
        ("train.label_smoothing=-0.1", "train.label_smoothing must be a number in [0, 1), got -0.1"),
        ("train.clip_norm=-1", "train.clip_norm must be a finite number of at least 0, got -1.0"),
        ("train.patience=-1", "train.patience must be a whole number of at least 0, got -1"),
        ("train.seed=-1", "train.seed must be a whole number in [0, 2 ** 32), got -1"),
        ("train.seed=4294967296", "train.seed must be a whole number in [0, 2 ** 32), got 4294967296"),
        ("data.seed=-1", "data.seed must be a whole number in [0, 2 ** 32), got -1"),
        ("train.best_metric=bleu", "train.best_metric=bleu needs train.validation_sentences above 0"),
        ("train.schedule=linear", "train.schedule must be one of paper, constant; got 'linear'"),
        ("train.objective=bleu", "train.objective must be one of likelihood, risk; got 'bleu'"),
        ("train.risk_samples=9", "train.risk_samples=9 needs train.objective=risk"),
        ("train.likelihood_weight=1", "train.likelihood_weight=1.0 needs train.objective=risk"),
        ("train.consistency=drop", "train.consistency must be one of none, simcut, rdrop; got 'drop'"),
        ("train.consistency_weight=1", "train.consistency_weight=1.0 needs train.consistency=simcut or rdrop"),
        ("train.cutoff_rate=0.1", "train.cutoff_rate=0.1 needs train.consistency=simcut"),
        ("train.cutoff_rate=1", "train.cutoff_rate must be a number in [0, 1), got 1.0"),
        ("train.consistency_weight=0", "train.consistency_weight must be a finite number above 0, got 0.0"),
        ("train.learning_rate_scale=nan", "train.learning_rate_scale must be a finite number above 0, got nan"),
        ("train.max_minutes=nan", "train.max_minutes must be a finite number of at least 0, got nan"),
        ("train.adam_epsilon=inf", "train.adam_epsilon must be a finite number above 0, got inf"),
        ("decode.beam_size=0", "decode.beam_size must be a whole number of at least 1, got 0"),
        ("decode.length_penalty=-0.5", "decode.length_penalty must be a finite number of at least 0, got -0.5"),
        ("decode.length_penalty=nan", "decode.length_penalty must be a finite number of at least 0, got nan"),
        ("decode.length_normalization=wu", "decode.length_normalization must be one of gnmt, average, none; got 'wu'"),
        ("decode.coverage_penalty=-1", "decode.coverage_penalty must be a finite number of at least 0, got -1.0"),
        ("decode.no_repeat_ngram_size=-2", "decode.no_repeat_ngram_size must be a whole number of at least 0, got -2"),
        ("decode.num_groups=3", "decode.beam_size=4 must be a multiple of decode.num_groups=3"),
        ("decode.diversity_strength=0.5", "decode.diversity_strength=0.5 needs decode.num_groups above 1"),
        ("decode.temperature=0", "decode.temperature must be a finite number above 0, got 0.0"),
        ("decode.top_p=1.5", "decode.top_p must be a number in (0, 1], got 1.5"),
        ("decode.top_k=5", "decode.top_k=5 needs decode.sampling=true"),
    ],
)
def test_an_invalid_setting_gets_one_line_with_the_valid_values(setting, complaint):
    with pytest.raises(InputError) as error:
        override(Config(), [setting])
    assert str(error.value).startswith(complaint)
    assert "\n" not in str(error.value)


def test_sampling_excludes_beam_options():
    assert DecodeConfig(sampling=True, beam_size=1, temperature=0.5, top_k=9, top_p=0.9, seed=-3).top_k == 9
    for options in ({"num_groups": 2}, {"coverage_penalty": 0.2}, {"patience": 1.0}):
        (name,) = options
        with pytest.raises(InputError, match=f"decode.{name}=.* cannot be combined with decode.sampling=true"):
            DecodeConfig(sampling=True, **options)


def test_risk_needs_two_samples_and_dynamic_shapes():
    assert TrainConfig(objective="risk", risk_samples=2, likelihood_weight=0.0).risk_samples == 2
    with pytest.raises(InputError, match=r"train\.risk_samples must be a whole number of at least 2, got 1"):
        TrainConfig(objective="risk", risk_samples=1)
    with pytest.raises(InputError, match=r"train\.likelihood_weight must be a finite number of at least 0, got -1"):
        TrainConfig(objective="risk", likelihood_weight=-1)
    with pytest.raises(InputError, match=r"train\.consistency=rdrop needs train\.objective=likelihood"):
        TrainConfig(objective="risk", consistency="rdrop")
    for name in ("static_shapes", "jit_compile"):
        with pytest.raises(InputError, match=f"train.{name}=true cannot be combined with train.objective=risk"):
            TrainConfig(objective="risk", **{name: True})


def test_an_unknown_setting_lists_all_fields():
    with pytest.raises(InputError) as error:
        override(Config(), ["decode.beams=3"])
    for field in dataclasses.fields(DecodeConfig):
        assert f"decode.{field.name}" in str(error.value)


def test_heads_that_do_not_divide_the_width_need_explicit_widths():
    assert TransformerConfig(num_heads=7, d_key=64, d_value=64).num_heads == 7


def test_differences_name_the_fields():
    old = Config()
    assert differences(old, old) == []
    new = Config(model=TransformerConfig(d_ff=64), data=DataConfig(corpus="multi30k"), train=TrainConfig(seed=2))
    assert differences(old, new) == [
        "model.d_ff: 2048 -> 64",
        "data.corpus: 'files' -> 'multi30k'",
        "train.seed: 1 -> 2",
    ]

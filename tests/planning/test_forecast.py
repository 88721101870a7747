"""The predicted cost of a training, compared with graphs, files and manual sums."""

import dataclasses

import numpy as np
import pytest

from t2t_keras.baselines.recurrent.rnn_attention_config import RNNAttentionConfig
from t2t_keras.config import Config, TrainConfig, TransformerConfig
from t2t_keras.data.encoded import write_encoded
from t2t_keras.models import presets
from t2t_keras.planning.forecast import Devices, forecast, pair_bytes, step

MODEL = TransformerConfig(
    vocab_size=23, num_encoder_layers=1, num_decoder_layers=1, d_model=48, d_ff=100, num_heads=3, dropout_rate=0.1
)
DEVICES = Devices(
    *("made up", 4),
    flops=2e12,
    float32_flops=1e12,
    utilisation=0.5,
    memory=1e9,
    memory_rate=1e10,
    link_rate=1e8,
)


def test_the_cost_of_a_step():
    config = Config(MODEL, train=TrainConfig(tokens_per_batch=1000))
    cost = step(config, DEVICES, 10)
    parameters = sum(MODEL.parameter_counts().values())
    assert cost.tokens == 1000
    assert cost.flops == 1000 * sum(MODEL.training_flops(10).values())
    assert cost.products == pytest.approx(cost.flops / (4 * 0.5e12))
    assert cost.sent == pytest.approx(1.5 * 4 * parameters)  # Each of 4 devices sends 3/4 of the gradients twice.
    assert cost.all_reduce == pytest.approx(cost.sent / 1e8)
    assert cost.update == pytest.approx(7 * 4 * parameters / 1e10)
    assert cost.seconds == pytest.approx(cost.products + cost.all_reduce + cost.update)


def test_products_in_bfloat16_have_a_separate_peak():
    exact, mixed = (
        step(Config(MODEL, train=TrainConfig(mixed_bfloat16=is_mixed)), DEVICES, 10) for is_mixed in (False, True)
    )
    assert mixed.products == pytest.approx(exact.products / 2)


def test_loops_over_time_and_additive_scores_have_separate_costs():
    """GNMT has 2 + 7 + 8 layers, each of which reads its sequence forward and backward."""
    gnmt = Config(RNNAttentionConfig(), train=TrainConfig(tokens_per_batch=1000))
    assert step(gnmt, DEVICES, 10).loops == pytest.approx(2 * 17 * 10 * 1e-4)
    in_parts = dataclasses.replace(gnmt, train=TrainConfig(tokens_per_batch=1000, accumulation_steps=4))
    assert step(in_parts, DEVICES, 10).loops == pytest.approx(4 * 2 * 17 * 10 * 1e-4)
    assert step(gnmt, DEVICES, 10).hidden_scores == pytest.approx(8 * 4 * 1000 * 10 * 1024 / 1e10 / 4)
    additive = Config(dataclasses.replace(MODEL, attention_score="additive"), train=gnmt.train)
    cost = step(additive, DEVICES, 10)
    assert cost.hidden_scores == pytest.approx(8 * 4 * 1000 * 3 * 10 * 48 / 1e10 / 4) and cost.loops == 0
    assert "additive scores" in forecast(additive, DEVICES, 10, 0)
    assert step(Config(MODEL), DEVICES, 10).hidden_scores == 0


@pytest.mark.parametrize(("likelihood_weight", "passes"), [(0.017, 9), (0.0, 8)])
def test_risk_needs_a_pass_and_a_drawing_pass_for_each_output(likelihood_weight, passes):
    """Drawing has no backward pass, which takes two thirds of the operations."""
    risk = TrainConfig(tokens_per_batch=1000, objective="risk", risk_samples=6, likelihood_weight=likelihood_weight)
    actual, plain = (
        step(Config(MODEL, train=train), DEVICES, 10) for train in (risk, TrainConfig(tokens_per_batch=1000))
    )
    assert actual.flops == pytest.approx(passes * plain.flops)
    assert actual.sent == plain.sent


def test_consistency_takes_two_passes():
    settings = {"tokens_per_batch": 1000}
    actual, plain = (
        step(Config(MODEL, train=TrainConfig(**settings, **changes)), DEVICES, 10)
        for changes in ({"consistency": "simcut"}, {})
    )
    assert actual.flops == pytest.approx(2 * plain.flops)


def test_the_predicted_flops_are_a_part_of_those_in_the_paper():
    """Table 2's FLOPs assume a GPU's sustained rate for all hours; this project counts only the products."""
    for name, paper in (("base", 3.3e18), ("big", 2.3e19)):
        config = presets.preset(name)
        flops = config.train.max_steps * step(config, DEVICES, 30).flops
        assert 0.2 < flops / paper < 0.8


@pytest.mark.parametrize("vocab_size", [37000, 70000])
def test_predicted_bytes_equal_those_of_the_files(tmp_path, vocab_size):
    pairs, length = 1000, 30
    tokens = np.full(length - 1, 7)
    write_encoded(tmp_path, "train", ((tokens, tokens) for _ in range(pairs)), vocab_size)
    file_bytes = sum(path.stat().st_size for path in tmp_path.iterdir())
    expected = pairs * pair_bytes(dataclasses.replace(MODEL, vocab_size=vocab_size), length)
    assert expected < file_bytes < 1.01 * expected + 1000


def test_accumulation_needs_less_memory():
    def activations(accumulation_steps: int) -> str:
        config = Config(MODEL, train=TrainConfig(accumulation_steps=accumulation_steps, tokens_per_batch=10**7))
        return next(line for line in forecast(config, DEVICES, 10, 0).splitlines() if "activations" in line)

    undivided, divided = (float(activations(parts).split()[1]) for parts in (1, 4))
    assert undivided == pytest.approx(4 * divided, rel=0.01)

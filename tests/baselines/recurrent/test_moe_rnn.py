"""The recurrent model with mixtures of experts: against NumPy, position by position, and as its own steps."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.baselines.recurrent.moe_rnn_config import MoERNNConfig
from t2t_keras.errors import InputError
from t2t_keras.models.contract import States
from t2t_keras.models.presets import preset
from tests.baselines.in_numpy import assert_equals_numpy, embedded, sigmoid
from tests.baselines.untrained import BATCH, TARGET, VOCAB, assert_steps_are_teacher_forcing, untrained
from tests.layers.numpy_oracle import gates, mixture, numbers

SIZES = {"d_model": 6, "num_units": 9, "d_attention": 5, "num_experts": 4, "experts_per_token": 2, "d_expert": 7}
SHAPES = {
    "three_and_two": {},
    "four_and_three": {"num_encoder_layers": 4, "num_decoder_layers": 3, "tie_embeddings": True},
    "fewest_layers": {"num_encoder_layers": 2, "num_decoder_layers": 1, "experts_per_token": 4},
    "no_experts": {"num_experts": 0},
}


@functools.cache
def make(shape: str = "three_and_two", **changes):
    return untrained(MoERNNConfig(vocab_size=VOCAB, **{**SIZES, **SHAPES[shape], **changes}))


# ---- NumPy, one sentence at a time, without padding ----


class LSTMInNumpy:
    """One layer, position by position: what is handed on is projected."""

    def __init__(self, layer) -> None:
        weights = layer.kernel, layer.recurrent_kernel, layer.bias, layer.projection_kernel
        self.kernel, self.recurrent, self.bias, self.projection = map(numbers, weights)
        self.hidden, self.cell = np.zeros(self.projection.shape[1]), np.zeros(self.projection.shape[0])

    def __call__(self, x: np.ndarray) -> np.ndarray:
        add, keep, candidate, show = np.split(x @ self.kernel + self.hidden @ self.recurrent + self.bias, 4)
        self.cell = sigmoid(keep) * self.cell + sigmoid(add) * np.tanh(candidate)
        self.hidden = (sigmoid(show) * np.tanh(self.cell)) @ self.projection
        return self.hidden


def read(layer, inputs: np.ndarray) -> np.ndarray:
    """[length, d_model] --> the same."""
    lstm = LSTMInNumpy(layer)
    outputs = [lstm(x) for x in (inputs[::-1] if layer.reverse else inputs)]
    return np.stack(outputs[::-1] if layer.reverse else outputs)


def with_experts(layer, x: np.ndarray) -> np.ndarray:
    return x if layer is None else x + sigmoid(mixture(layer, x, gates(layer, x)[0]))


def logits_in_numpy(model, source: list[int], target: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Logits [target_len, vocab] and attention [target_len, source_len]."""
    x = embedded(model.source_embedding, source)
    x = with_experts(model.encoder_experts, x + read(model.forward_layer, x) + read(model.backward_layer, x))
    for layer in model.encoder_layers:
        x = x + read(layer, x)
    memory, attention, bottom, outputs, seen = x, model.bottom.attention, LSTMInNumpy(model.bottom.lstm), [], []
    keys = np.tanh(memory @ numbers(attention.memory_kernel))
    for token in embedded(model.target_embedding, [0, *target[:-1]]):
        query = np.tanh(bottom.hidden @ numbers(attention.query_kernel))
        scores = [sum(numbers(attention.score) * query * key) for key in keys]
        weights = np.exp(scores) / np.exp(scores).sum()
        outputs.append(token + bottom(np.concatenate([token, weights @ memory])))
        seen.append(weights)
    x = with_experts(model.decoder_experts, np.stack(outputs))
    for layer in model.decoder_layers:
        x = x + read(layer, x)
    head = model.output_head
    return x @ numbers(head.table).T + numbers(head.bias), np.stack(seen)


@pytest.mark.parametrize("shape", SHAPES)
def test_equals_numpy(shape):
    assert_equals_numpy(make(shape), logits_in_numpy)


@pytest.mark.parametrize("shape", SHAPES)
def test_its_settings_count_its_weights(shape):
    model = make(shape)
    model.build()  # again, which makes no weight twice
    assert model.count_params() == sum(model.config.parameter_counts().values())


def test_sizes_of_the_paper():
    """85 million operations a step of the decoder, and 8.7 billion parameters with 2,048 experts."""
    model = preset("moe").model
    assert model.training_flops(1)["matrices"] / 6 == pytest.approx(85e6, rel=0.01)
    many = {**vars(model), "num_experts": 2048}
    assert sum(MoERNNConfig(**many).parameter_counts().values()) == pytest.approx(8.7e9, rel=0.005)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_encoder_layers": 1}, r"model\.num_encoder_layers must be a whole number of at least 2, got 1"),
        ({"num_experts": 3}, r"model\.experts_per_token=4 is more than model\.num_experts=3"),
        ({"num_experts": -1}, r"model\.num_experts must be a whole number of at least 0"),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(InputError, match=message):
        MoERNNConfig(**settings)


def test_the_balance_loss_of_a_batch_is_the_sum_of_its_sentences():
    model = make(gate_noise=False, dropout_rate=0.0)

    def states(rows, padding: int = 0, **how) -> States:
        batch = {name: np.pad(ids[rows], ((0, 0), (0, padding))) for name, ids in BATCH.items()}
        return model.states(batch, training=True, **how)

    whole, skipped = (states(slice(None), skip_padding=skip) for skip in (False, True))
    assert float(whole.auxiliary_loss) > 0.01
    parts = [float(states(slice(row, row + 1), padding=row).auxiliary_loss) for row in range(3)]
    assert sum(parts) == pytest.approx(float(whole.auxiliary_loss), rel=1e-5)
    assert float(skipped.auxiliary_loss) == pytest.approx(float(whole.auxiliary_loss), rel=1e-5)
    is_token = TARGET != 0
    np.testing.assert_allclose(np.array(skipped.hidden)[is_token], np.array(whole.hidden)[is_token], atol=1e-5)
    assert float(make("no_experts").states(BATCH, training=True).auxiliary_loss) == 0


@pytest.mark.quick("fewest_layers-beam_size")
@pytest.mark.parametrize(
    "settings",
    [
        {"beam_size": 1},
        {"beam_size": 3, "sampling": True},
        pytest.param({"beam_size": 4, "num_groups": 2, "diversity_strength": 0.5}, marks=pytest.mark.slow),
        {"beam_size": 3, "coverage_penalty": 0.4, "length_normalization": "average"},
    ],
    ids=lambda settings: ",".join(settings),
)
@pytest.mark.parametrize("shape", ["three_and_two", "fewest_layers"])
def test_steps_are_teacher_forcing(shape, settings):
    assert_steps_are_teacher_forcing(make(shape), settings)


def test_noise_is_a_function_of_the_seed():
    model = make(dropout_rate=0.0)

    def values(seed: int, training: bool = True) -> np.ndarray:
        states = model.states(BATCH, seed=tf.constant([seed, 0]), training=training)
        return np.append(states.hidden, states.auxiliary_loss)

    np.testing.assert_array_equal(values(1), values(1))
    assert np.abs(values(1) - values(2)).max() > 0.01
    np.testing.assert_array_equal(values(1, training=False), values(2, training=False))

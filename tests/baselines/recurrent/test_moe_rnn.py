"""The recurrent model with mixtures of experts: comparison with NumPy."""

import functools

import numpy as np
import pytest

from t2t_keras.baselines.recurrent.moe_rnn_config import MoERNNConfig
from t2t_keras.errors import InputError
from t2t_keras.models.contract import States
from t2t_keras.models.presets import preset
from tests.baselines.in_numpy import assert_equals_numpy, embedded, sigmoid
from tests.baselines.untrained import BATCH, TARGET, VOCAB, untrained
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


# ---- Reference in NumPy: one sentence at a time, without padding ----


class LSTMInNumpy:
    """One layer, step by step; the cell's output is projected."""

    def __init__(self, layer) -> None:
        weights = layer.kernel, layer.recurrent_kernel, layer.bias, layer.projection_kernel
        self.kernel, self.recurrent, self.bias, self.projection = map(numbers, weights)
        self.hidden, self.cell = np.zeros(self.projection.shape[1]), np.zeros(self.projection.shape[0])

    def __call__(self, x: np.ndarray) -> np.ndarray:
        input_gate, forget_gate, candidate, output_gate = np.split(
            x @ self.kernel + self.hidden @ self.recurrent + self.bias, 4
        )
        self.cell = sigmoid(forget_gate) * self.cell + sigmoid(input_gate) * np.tanh(candidate)
        self.hidden = (sigmoid(output_gate) * np.tanh(self.cell)) @ self.projection
        return self.hidden


def run_lstm(layer, inputs: np.ndarray) -> np.ndarray:
    """Shapes: [length, d_model] --> [length, d_model]."""
    lstm = LSTMInNumpy(layer)
    outputs = [lstm(x) for x in (inputs[::-1] if layer.reverse else inputs)]
    return np.stack(outputs[::-1] if layer.reverse else outputs)


def with_experts(layer, x: np.ndarray) -> np.ndarray:
    return x if layer is None else x + sigmoid(mixture(layer, x, gates(layer, x)[0]))


def logits_in_numpy(model, source: list[int], target: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Returns logits, [target_len, vocab], and attention, [target_len, source_len]."""
    x = embedded(model.source_embedding, source)
    x = with_experts(model.encoder_experts, x + run_lstm(model.forward_layer, x) + run_lstm(model.backward_layer, x))
    for layer in model.encoder_layers:
        x = x + run_lstm(layer, x)
    memory, attention, bottom, outputs, attention_weights = (
        x,
        model.bottom.attention,
        LSTMInNumpy(model.bottom.lstm),
        [],
        [],
    )
    keys = np.tanh(memory @ numbers(attention.memory_kernel))
    for token in embedded(model.target_embedding, [0, *target[:-1]]):
        query = np.tanh(bottom.hidden @ numbers(attention.query_kernel))
        scores = [sum(numbers(attention.score) * query * key) for key in keys]
        weights = np.exp(scores) / np.exp(scores).sum()
        outputs.append(token + bottom(np.concatenate([token, weights @ memory])))
        attention_weights.append(weights)
    x = with_experts(model.decoder_experts, np.stack(outputs))
    for layer in model.decoder_layers:
        x = x + run_lstm(layer, x)
    head = model.output_head
    return x @ numbers(head.table).T + numbers(head.bias), np.stack(attention_weights)


@pytest.mark.parametrize("shape", SHAPES)
def test_equals_numpy(shape):
    assert_equals_numpy(make(shape), logits_in_numpy)


def test_sizes_of_the_paper():
    """A decoder step takes 85 million operations; with 2,048 experts the model has 8.7 billion parameters."""
    model = preset("moe").model
    assert model.training_flops(1)["matrices"] / 6 == pytest.approx(85e6, rel=0.01)
    settings = {**vars(model), "num_experts": 2048}
    assert sum(MoERNNConfig(**settings).parameter_counts().values()) == pytest.approx(8.7e9, rel=0.005)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_encoder_layers": 1}, r"model\.num_encoder_layers must be a whole number of at least 2, got 1"),
        ({"num_experts": 3}, r"model\.experts_per_token=4 is more than model\.num_experts=3"),
        ({"num_experts": -1}, r"model\.num_experts must be a whole number of at least 0"),
    ],
)
def test_invalid_settings_are_rejected(settings, message):
    with pytest.raises(InputError, match=message):
        MoERNNConfig(**settings)


def test_the_balance_loss_of_a_batch_is_the_sum_of_its_sentences():
    model = make(gate_noise=False, dropout_rate=0.0)

    def states(rows, padding: int = 0, **options) -> States:
        batch = {name: np.pad(ids[rows], ((0, 0), (0, padding))) for name, ids in BATCH.items()}
        return model.states(batch, training=True, **options)

    unpadded, skipped = (states(slice(None), skip_padding=skip) for skip in (False, True))
    assert float(unpadded.auxiliary_loss) > 0.01
    parts = [float(states(slice(row, row + 1), padding=row).auxiliary_loss) for row in range(3)]
    assert sum(parts) == pytest.approx(float(unpadded.auxiliary_loss), rel=1e-5)
    assert float(skipped.auxiliary_loss) == pytest.approx(float(unpadded.auxiliary_loss), rel=1e-5)
    is_token = TARGET != 0
    np.testing.assert_allclose(np.array(skipped.hidden)[is_token], np.array(unpadded.hidden)[is_token], atol=1e-5)
    assert float(make("no_experts").states(BATCH, training=True).auxiliary_loss) == 0

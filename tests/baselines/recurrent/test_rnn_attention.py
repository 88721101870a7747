"""The recurrent model with attention: comparison with NumPy."""

import functools
from typing import Any

import numpy as np
import pytest

from t2t_keras.baselines.recurrent.rnn_attention_config import RNNAttentionConfig
from tests.baselines.in_numpy import assert_equals_numpy, embedded, sigmoid
from tests.baselines.untrained import VOCAB, untrained
from tests.layers.numpy_oracle import numbers

SIZES = {"d_model": 8, "num_encoder_layers": 3, "num_decoder_layers": 4, "num_units": 6, "d_attention": 5}
DEEP_ATT = {"encoder": "alternating_columns", "connections": "fast_forward", "d_memory": 7}
SHAPES: dict[str, dict[str, Any]] = {
    "three_layers": {},
    "one_layer": {"num_encoder_layers": 1, "num_decoder_layers": 1},
    "tied": {"tie_embeddings": True, "d_model": 6},
    "columns": {"encoder": "alternating_columns", "d_memory": 7},
    "deep_att": DEEP_ATT,
    "fast_forward": {"connections": "fast_forward", "d_model": 18, "tie_embeddings": True},
    "state_context": {"readout": "state_context", "num_units": 8, "tie_embeddings": True},
    "deep_att_context": {**DEEP_ATT, "readout": "state_context"},
    "residual_from_four": {"first_residual": 4, "num_units": 8, "num_encoder_layers": 5},
}


@functools.cache
def make(shape: str = "three_layers", **changes):
    return untrained(RNNAttentionConfig(vocab_size=VOCAB, **{**SIZES, **SHAPES[shape], **changes}))


# ---- Reference in NumPy: one sentence at a time, without padding ----


def lstm_in_numpy(layer, inputs: np.ndarray) -> np.ndarray:
    """Shapes: [length, d_in] --> [length, units]."""
    kernel, recurrent, bias = (numbers(weight) for weight in (layer.kernel, layer.recurrent_kernel, layer.bias))
    hidden, cell, outputs = np.zeros(layer.units), np.zeros(layer.units), []
    for x in inputs[::-1] if layer.reverse else inputs:
        input_gate, forget_gate, candidate, output_gate = np.split(x @ kernel + hidden @ recurrent + bias, 4)
        cell = sigmoid(forget_gate) * cell + sigmoid(input_gate) * np.tanh(candidate)
        hidden = sigmoid(output_gate) * np.tanh(cell)
        outputs.append(hidden)
    return np.stack(outputs[::-1] if layer.reverse else outputs)


def attended_in_numpy(attention, query: np.ndarray, memory: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    hidden = np.tanh(
        query @ numbers(attention.query_kernel) + memory @ numbers(attention.memory_kernel) + numbers(attention.bias)
    )
    scores = (hidden @ numbers(attention.score))[:, 0]
    weights = np.exp(scores - scores.max())
    weights /= weights.sum()
    return weights @ memory, weights


def logits_in_numpy(model, source: list[int], target: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Returns logits, [target_len, vocab], and attention, [target_len, source_len]."""
    fast, units = model.config.connections == "fast_forward", model.config.num_units

    def gates(lstm, x):
        return x @ numbers(lstm.kernel) + numbers(lstm.bias)

    def stacked(layers, x, first, contexts=None):
        """Shapes: [length, width of the layer below] --> [length, width of the top layer]."""
        for number, layer in enumerate(layers, start=first):
            inputs = x if contexts is None or fast else np.concatenate([x, contexts], axis=1)
            outputs = lstm_in_numpy(layer, inputs)
            if fast:
                x = np.concatenate([outputs, gates(layer, inputs)[:, : 2 * units]], axis=1)
            else:
                x = x + outputs if number >= model.config.first_residual else outputs
        return x

    x = embedded(model.source_embedding, source)
    left, right = (stacked(column, x, 1) for column in model.columns)
    hidden, rest = (
        np.concatenate([side[:, part] for side in (left, right)], axis=1) for part in (slice(units), slice(units, None))
    )
    memory = stacked(model.encoder_layers, np.concatenate([hidden, rest], axis=1), 2)
    if model.memory_projection is not None:
        memory = memory @ numbers(model.memory_projection.kernel)
    bottom = model.bottom.lstm
    hidden, cell, outputs, contexts, attention = np.zeros(units), np.zeros(units), [], [], []
    for token in embedded(model.target_embedding, [0, *target[:-1]]):
        context, weights = attended_in_numpy(model.bottom.attention, hidden, memory)
        input_products = gates(bottom, np.concatenate([token, context]))
        input_gate, forget_gate, candidate, output_gate = np.split(
            input_products + hidden @ numbers(bottom.recurrent_kernel), 4
        )
        cell = sigmoid(forget_gate) * cell + sigmoid(input_gate) * np.tanh(candidate)
        hidden = sigmoid(output_gate) * np.tanh(cell)
        outputs.append(np.concatenate([hidden, input_products[: 2 * units]]) if fast else hidden)
        contexts.append(context)
        attention.append(weights)
    x = stacked(model.decoder_layers, np.stack(outputs), 2, np.stack(contexts))
    if model.config.readout == "state_context":
        x = np.concatenate([x, np.stack(contexts)], axis=1)
    if model.readout is not None:
        x = x @ numbers(model.readout.kernel)
    head = model.output_head
    return x @ numbers(head.table).T + numbers(head.bias), np.stack(attention)


@pytest.mark.parametrize("shape", SHAPES)
def test_equals_numpy(shape):
    assert_equals_numpy(make(shape), logits_in_numpy)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_configuration_counts_the_weights(shape):
    model = make(shape)
    model.build()  # A second build creates no weights.
    assert model.count_params() == sum(model.config.parameter_counts().values())
    assert sum(model.config.training_flops(20).values()) > 6 * sum(model.config.parameter_counts().values()) / 4

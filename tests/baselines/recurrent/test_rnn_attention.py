"""The recurrent model with attention: against NumPy, position by position, and as its own steps."""

import functools
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.baselines.recurrent.rnn_attention_config import RNNAttentionConfig
from t2t_keras.config import DecodeConfig
from t2t_keras.errors import InputError
from t2t_keras.inference.forced import token_log_probs_function
from t2t_keras.models import families
from t2t_keras.models.contract import COVERAGE, States
from t2t_keras.search.searches import Searches
from tests.layers.numpy_oracle import numbers

VOCAB = 40
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
SOURCE = np.array([[5, 6, 7, 30, 1], [9, 8, 1, 0, 0], [4, 1, 0, 0, 0]], np.int32)
TARGET = np.array([[3, 4, 5, 1], [8, 1, 0, 0], [11, 12, 13, 14]], np.int32)


@functools.cache
def make(shape: str = "three_layers", **changes):
    """Untrained, but every weight matters."""
    keras.utils.set_random_seed(1)
    model = families.make_model(RNNAttentionConfig(vocab_size=VOCAB, **{**SIZES, **SHAPES[shape], **changes}))
    random = np.random.default_rng(2)
    for weight in model.trainable_variables:
        weight.assign(weight + 0.3 * random.standard_normal(tuple(weight.shape)).astype("float32"))
    return model


# ---- NumPy, one sentence at a time, without padding ----


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm_in_numpy(layer, inputs: np.ndarray) -> np.ndarray:
    """[length, d_in] --> [length, units]."""
    kernel, recurrent, bias = (numbers(weight) for weight in (layer.kernel, layer.recurrent_kernel, layer.bias))
    hidden, cell, outputs = np.zeros(layer.units), np.zeros(layer.units), []
    for x in inputs[::-1] if layer.reverse else inputs:
        add, keep, candidate, show = np.split(x @ kernel + hidden @ recurrent + bias, 4)
        cell = sigmoid(keep) * cell + sigmoid(add) * np.tanh(candidate)
        hidden = sigmoid(show) * np.tanh(cell)
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
    """Logits [target_len, vocab] and attention [target_len, source_len]."""

    def embedded(embedding, ids):
        rows = numbers(embedding.table)[ids] * np.sqrt(model.config.d_model)
        return rows * (np.array(ids) != 0)[:, None]

    fast, units = model.config.connections == "fast_forward", model.config.num_units

    def gates(lstm, x):
        return x @ numbers(lstm.kernel) + numbers(lstm.bias)

    def stacked(layers, x, first, contexts=None):
        """[length, width] of the layer below --> what the top layer hands on."""
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
        of_inputs = gates(bottom, np.concatenate([token, context]))
        add, keep, candidate, show = np.split(of_inputs + hidden @ numbers(bottom.recurrent_kernel), 4)
        cell = sigmoid(keep) * cell + sigmoid(add) * np.tanh(candidate)
        hidden = sigmoid(show) * np.tanh(cell)
        outputs.append(np.concatenate([hidden, of_inputs[: 2 * units]]) if fast else hidden)
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
    """In a batch with padding too; so neither padding nor other sentences matter."""
    model = make(shape)
    logits, attentions = model.logits_and_attention({"source": SOURCE, "target": TARGET})
    attention = attentions.cross
    assert attention.shape == (3, 1, 1, 4, 5)
    np.testing.assert_allclose(model({"source": SOURCE, "target": TARGET}), logits, atol=1e-5)
    for row in range(3):
        source, target = (ids[row][ids[row] != 0].tolist() for ids in (SOURCE, TARGET))
        expected, weights = logits_in_numpy(model, source, target)
        np.testing.assert_allclose(logits[row, : len(target)], expected, rtol=1e-4, atol=1e-5)
        found = attention[row, 0, 0, : len(target)]
        np.testing.assert_allclose(found[:, : len(source)], weights, rtol=1e-4, atol=1e-6)
        assert not np.any(found[:, len(source) :] > 1e-7)


def test_the_second_layer_has_no_residual_connection():
    with pytest.raises(InputError, match=r"model\.first_residual must be at least 3, got 2"):
        RNNAttentionConfig(first_residual=2)


@pytest.mark.parametrize("shape", SHAPES)
def test_its_settings_count_its_weights(shape):
    model = make(shape)
    model.build()  # again, which makes no weight twice
    assert model.count_params() == sum(model.config.parameter_counts().values())
    assert sum(model.config.training_flops(20).values()) > 6 * sum(model.config.parameter_counts().values()) / 4


@pytest.mark.parametrize(("source_len", "target_len"), [(0, 3), (4, 0)])
def test_nothing_has_no_states(source_len, target_len):
    batch = {"source": np.zeros([2, source_len], np.int32), "target": np.zeros([2, target_len], np.int32)}
    assert make("one_layer").states(batch).hidden.shape[:2] == (2, target_len)


def test_a_target_depends_on_earlier_ones_alone():
    model, changed = make(), TARGET.copy()
    changed[:, 2:] = 17
    logits, others = (np.array(model({"source": SOURCE, "target": target})) for target in (TARGET, changed))
    np.testing.assert_array_equal(logits[:, :3], others[:, :3])
    assert np.abs(logits[2, 3] - others[2, 3]).max() > 1e-3


@pytest.mark.quick("one_layer-beam_size0", "one_layer-beam_size,coverage_penalty,length_normalization")
@pytest.mark.parametrize(
    "settings",
    [
        {"beam_size": 1},
        {"beam_size": 4},
        {"beam_size": 3, "sampling": True},
        {"beam_size": 4, "num_groups": 2, "diversity_strength": 0.5},
        {"beam_size": 3, "coverage_penalty": 0.4, "length_normalization": "average"},
    ],
    ids=lambda settings: ",".join(settings),
)
@pytest.mark.parametrize(
    "shape", [pytest.param("three_layers", marks=pytest.mark.slow), "one_layer", "deep_att", "state_context"]
)
def test_steps_are_teacher_forcing(shape, settings):
    model = make(shape)
    result = Searches(model, DecodeConfig(max_length_offset=6, **settings))(SOURCE)
    forced = token_log_probs_function(model)
    for slot in range(settings["beam_size"]):
        expected = np.sum(forced(SOURCE, result.token_ids[:, slot]), axis=1)
        log_probs = np.array(result.log_probs[:, slot])
        given = np.isfinite(log_probs)  # a search may end with fewer hypotheses than the beam is wide
        assert slot or given.all()
        np.testing.assert_allclose(log_probs[given], expected[given], rtol=1e-5, atol=1e-4)


def test_coverage_is_the_sum_of_attention():
    model = make()
    memory = model.encode(SOURCE)
    search = model.begin(SOURCE, memory, 1, wanted=frozenset({COVERAGE}))
    cache = search.cache
    for token_ids in np.pad(TARGET, ((0, 0), (1, 0)))[:, :-1].T:
        _, cache = search.step(tf.constant(token_ids), cache)
    _, (encoder, decoder, attention) = model.logits_and_attention({"source": SOURCE, "target": TARGET})
    assert encoder.shape[1:] == (0, 0, SOURCE.shape[1], SOURCE.shape[1])
    assert decoder.shape[1:] == (0, 0, TARGET.shape[1], TARGET.shape[1])
    expected = np.sum(attention[:, 0, 0], axis=1) + (SOURCE == 0)
    np.testing.assert_allclose(cache.coverage[:, 0], expected, atol=1e-5)
    np.testing.assert_allclose(
        model.alignment_attention({"source": SOURCE, "target": TARGET}), attention[:, 0, 0], atol=1e-6
    )


@pytest.mark.integration
def test_bfloat16_is_close():
    model = make()
    exact, rounded = (
        Searches(model, DecodeConfig(beam_size=1, max_length_offset=3, bfloat16=bfloat16))(SOURCE[:1])
        for bfloat16 in (False, True)
    )
    difference = abs(float(exact.log_probs[0, 0]) - float(rounded.log_probs[0, 0]))
    assert 0 < difference < 0.1 * abs(float(exact.log_probs[0, 0])) + 0.1


def test_dropout_is_a_function_of_its_seed():
    model = make(dropout_rate=0.5)
    batch = {"source": SOURCE, "target": TARGET}

    def hidden(seed: int, training: bool = True) -> np.ndarray:
        states = model.states(batch, seed=tf.constant([seed, 0]), training=training)
        assert isinstance(states, States) and float(states.auxiliary_loss) == 0
        return np.array(states.hidden)

    np.testing.assert_array_equal(hidden(1), hidden(1))
    assert np.abs(hidden(1) - hidden(2)).max() > 0.01
    np.testing.assert_array_equal(hidden(1, training=False), hidden(2, training=False))


def test_keras_saves_it(tmp_path):
    model = make()
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    batch = {"source": SOURCE, "target": TARGET}
    np.testing.assert_array_equal(again(batch), model(batch))

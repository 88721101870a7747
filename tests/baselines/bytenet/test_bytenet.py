"""ByteNet: comparison with NumPy, receptive fields and search."""

import dataclasses
import functools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.baselines.bytenet.bytenet_config import ByteNetConfig
from t2t_keras.errors import InputError
from tests.baselines.in_numpy import embedded
from tests.baselines.untrained import SOURCE, VOCAB, untrained
from tests.layers.numpy_oracle import layer_norm, numbers

SIZES = {"d_model": 6, "num_encoder_layers": 2, "num_decoder_layers": 3, "dilation_rates": (1, 2)}
SHAPES: dict[str, dict[str, Any]] = {
    "two_rates": {},
    "one_layer": {"num_encoder_layers": 1, "num_decoder_layers": 1, "unfolding_offset": 2},
    "tied": {"tie_embeddings": True, "kernel_size": 5, "unfolding_factor": 2.0},
}
# Each target is longer than the memory of its source.
TARGET = np.array([[3, 4, 5, 7, 9, 6, 4, 3, 2, 30, 31, 1], [8, 1] + 10 * [0], [11, 12, 13, 14] + 8 * [0]], np.int32)


@functools.cache
def make(shape: str = "two_rates", **changes):
    return untrained(ByteNetConfig(vocab_size=VOCAB, **{**SIZES, **SHAPES[shape], **changes}))


# ---- Reference in NumPy: one sentence at a time, without padding ----


def linear(layer, x: np.ndarray) -> np.ndarray:
    return x @ numbers(layer.kernel)[0] + numbers(layer.bias)


def activated(norm, x: np.ndarray) -> np.ndarray:
    return np.maximum(layer_norm(norm, x), 0)


def block_in_numpy(block, x: np.ndarray) -> np.ndarray:
    """Shapes: [length, 2 d] --> [length, 2 d]."""
    inner = activated(block.inner_norm, linear(block.narrowing, activated(block.input_norm, x)))
    kernel, rate = numbers(block.dilated.kernel), block.dilation_rate
    middle = len(kernel) - 1 if block.causal else len(kernel) // 2
    outputs = []
    for place in range(len(x)):
        outputs.append(numbers(block.dilated.bias).copy())
        for number, matrix in enumerate(kernel):
            if 0 <= (neighbour := place + (number - middle) * rate) < len(x):
                outputs[-1] += inner[neighbour] @ matrix
    return x + linear(block.widening, activated(block.output_norm, np.stack(outputs)))


def logits_in_numpy(model, source: list[int], target: list[int]) -> np.ndarray:
    """Returns the logits, [target_len, vocab]."""
    config = model.config
    length = int(np.floor(np.round(config.unfolding_factor * len(source), 6))) + config.unfolding_offset
    added = np.tile(numbers(model.unfolding), (length - len(source), 1))
    x = np.concatenate([embedded(model.source_embedding, source), added])
    for block in model.encoder_layers:
        x = block_in_numpy(block, x)
    memory = linear(model.encoder_readout, activated(model.encoder_norm, x))
    memory = np.concatenate([memory, np.zeros((len(target), config.d_model))])[: len(target)]
    x = np.concatenate([embedded(model.target_embedding, [0, *target[:-1]]), memory], axis=1)
    for block in model.decoder_layers:
        x = block_in_numpy(block, x)
    hidden = linear(model.decoder_readout, activated(model.decoder_norm, x))
    return hidden @ numbers(model.output_head.table).T + numbers(model.output_head.bias)


@pytest.mark.parametrize("shape", SHAPES)
def test_equals_numpy(shape):
    """The batch has padding, so that the test covers the masks and the independence of the sentences."""
    model = make(shape)
    actual = model({"source": SOURCE, "target": TARGET})
    for row in range(3):
        source, target = (ids[row][ids[row] != 0].tolist() for ids in (SOURCE, TARGET))
        expected = logits_in_numpy(model, source, target)
        np.testing.assert_allclose(actual[row, : len(target)], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_parameters_are_counted(shape):
    model = make(shape)
    model.build()  # A second build creates no weights.
    assert model.count_params() == sum(model.config.parameter_counts().values())
    parts = {"embedding": 0, "encoder": 0, "decoder": 0}
    for weight in model.trainable_variables:
        name = weight.path.partition("/")[2]
        parts["embedding" if "embedding" in name else name.partition("_")[0]] += int(np.prod(weight.shape))
    assert parts == model.config.parameter_counts()


def test_products_are_counted():
    """Training takes six operations per parameter and token. The lookup of source embeddings takes none."""
    config = make(unfolding_factor=1.0).config
    weights = make(unfolding_factor=1.0).trainable_variables
    products = sum(int(np.prod(weight.shape)) for weight in weights if len(weight.shape) == 3)
    assert config.training_flops(10) == {"matrices": 6 * (products + VOCAB * 6), "unfolding": 0}
    longer = dataclasses.replace(config, unfolding_factor=1.5, unfolding_offset=5)  # doubles the length
    assert longer.training_flops(10) == {**config.training_flops(10), "unfolding": 6 * (2 * 7 + 2) * 6**2}
    activations = [shape.kept_activations(10).computed for shape in (config, longer)]
    assert activations[1] / activations[0] == (2 + 2 + 3) / (2 + 3)


@pytest.mark.parametrize(
    ("factor", "offset", "lengths"),
    [(1.2, 0, [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 12]), (1.0, 0, list(range(11))), (1.5, 3, [3, 4, 6, 7, 9, 10, 12, 13])],
)
def test_the_length_of_the_memory_is_exact(factor, offset, lengths):
    config = ByteNetConfig(unfolding_factor=factor, unfolding_offset=offset)
    numbers = range(len(lengths))
    assert [config.unfolded_length(number) for number in numbers] == lengths
    assert config.unfolded_length(tf.constant(numbers)).numpy().tolist() == lengths
    large = ByteNetConfig(unfolding_factor=1.1)
    assert [large.unfolded_length(10 * number) for number in range(1000)] == [11 * number for number in range(1000)]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"kernel_size": 2}, r"model\.kernel_size must be odd, got 2"),
        ({"dilation_rates": ()}, r"model\.dilation_rates must not be empty"),
        ({"dilation_rates": (1, 0)}, r"model\.dilation_rates must be a whole number of at least 1, got 0"),
        ({"unfolding_factor": 0.9}, r"model\.unfolding_factor must be a number from 1 to 100, got 0\.9"),
        ({"unfolding_factor": 1e308}, r"model\.unfolding_factor must be a number from 1 to 100, got 1e\+308"),
        ({"unfolding_offset": -1}, r"model\.unfolding_offset must be a whole number of at least 0, got -1"),
        ({"num_decoder_layers": 0}, r"model\.num_decoder_layers must be a whole number of at least 1, got 0"),
    ],
)
def test_invalid_settings_are_rejected(change, complaint):
    with pytest.raises(InputError, match=complaint):
        ByteNetConfig(**change)


# ---- Receptive fields ----

RATES = {"dilation_rates": (1, 2, 4), "num_encoder_layers": 3, "num_decoder_layers": 4}


def changed_positions(make_logits, length: int, place: int) -> np.ndarray:
    """Returns the positions whose outputs change with the token at `place`."""
    ids = np.arange(2, 2 + length)[None].astype(np.int32)
    changed_ids = ids.copy()
    changed_ids[0, place] = 39
    return np.flatnonzero(np.abs(np.array(make_logits(ids)) - np.array(make_logits(changed_ids))).max(axis=(0, 2)) > 0)


def test_a_target_affects_later_positions_within_the_receptive_field():
    model = make(**RATES)
    field = model.config.receptive_field(4)
    assert field == 1 + 2 * (1 + 2 + 4 + 1)
    source = np.full((1, 4), 5, np.int32)
    changed = changed_positions(lambda target: model({"source": source, "target": target}), 30, 3)
    np.testing.assert_array_equal(changed, np.arange(4, 4 + field))


def test_a_source_affects_both_sides_within_the_receptive_field():
    model = make(**RATES)
    reach = (model.config.receptive_field(3) - 1) // 2
    assert reach == 1 + 2 + 4
    changed = changed_positions(model.encode, 30, 12)
    np.testing.assert_array_equal(changed, np.arange(12 - reach, 12 + reach + 1))
    # The last token also affects the unfolded positions behind it, which the encoder computes.
    changed = changed_positions(model.encode, 30, 29)
    np.testing.assert_array_equal(changed, np.arange(29 - reach, 36))


def test_the_memory_is_zero_beyond_its_length():
    model = make()
    memory = np.array(model.encode(SOURCE))
    assert memory.shape == (3, 6, 6)
    for row, length in enumerate((6, 3, 2)):
        assert np.all(memory[row, :length].any(axis=1)) and not memory[row, length:].any()

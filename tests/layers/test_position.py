"""Positions against sines and cosines that are computed one by one."""

import math

import numpy as np
import pytest
from keras import ops

from t2t_keras.layers import LearnedPositions, SinusoidalPositions
from t2t_keras.layers.position import sinusoids


def interleaved(position: int, d_model: int) -> list[float]:
    """Returns the encoding of section 3.5."""
    row = []
    for i in range(d_model // 2):
        angle = position / 10000 ** (2 * i / d_model)
        row += [math.sin(angle), math.cos(angle)]
    return row


def halves(position: int, d_model: int) -> list[float]:
    """Returns T2T's encoding: sines, then cosines; the exponent's denominator is d_model / 2 - 1."""
    angles = [position / 10000 ** (i / max(d_model // 2 - 1, 1)) for i in range(d_model // 2)]
    return [math.sin(angle) for angle in angles] + [math.cos(angle) for angle in angles]


FORMULAS = {"interleaved": interleaved, "halves": halves}


def test_the_first_positions_by_hand():
    rows = np.array(sinusoids(np.arange(3), 4))
    assert rows.dtype == np.float32
    expected = [
        [0.0, 1.0, 0.0, 1.0],
        [0.84147098, 0.54030231, 0.00999983, 0.99995000],
        [0.90929743, -0.41614684, 0.01999867, 0.99980001],
    ]
    np.testing.assert_allclose(rows, expected, atol=1e-7)
    expected = [[0.0, 0.0, 1.0, 1.0], [0.84147098, 0.0001, 0.54030231, 1.0]]
    np.testing.assert_allclose(sinusoids(np.arange(2), 4, "halves"), expected, atol=1e-7)


@pytest.mark.parametrize("layout", FORMULAS)
@pytest.mark.parametrize("d_model", [2, 6, 512])
def test_sinusoids_equal_the_formula_at_any_length(layout, d_model):
    positions = [0, 1, 2, 17, 255, 1023, 5000]
    expected = [FORMULAS[layout](position, d_model) for position in positions]
    # Angles are float32: at position 5,000, their error is about 5000 * 2^-23.
    np.testing.assert_allclose(sinusoids(np.array(positions), d_model, layout), expected, atol=2e-3)
    np.testing.assert_allclose(sinusoids(np.array(positions[:4]), d_model, layout), expected[:4], atol=1e-5)


@pytest.mark.parametrize("layout", FORMULAS)
def test_the_layer_adds_positions_from_a_start(layout, rng):
    x = rng.standard_normal((2, 3, 6)).astype("float32")
    layer = SinusoidalPositions(layout)
    for start in (0, 7, ops.convert_to_tensor(7, "int32")):
        expected = x + np.array([FORMULAS[layout](int(start) + i, 6) for i in range(3)])
        np.testing.assert_allclose(layer(x, start=start), expected, atol=1e-5)
    np.testing.assert_allclose(layer(x), x + np.array([FORMULAS[layout](i, 6) for i in range(3)]), atol=1e-5)


def test_positions_are_computed_in_float32_under_mixed_precision(mixed_bfloat16):
    """bfloat16 does not distinguish position 1,000 from 1,001."""
    outputs = ops.cast(SinusoidalPositions()(np.zeros((1, 2, 8), "float32"), start=1000), "float32")
    np.testing.assert_allclose(outputs[0], [interleaved(1000, 8), interleaved(1001, 8)], atol=0.005)


def test_learned_positions_add_the_rows_of_their_table(rng):
    x = rng.standard_normal((2, 3, 4)).astype("float32")
    layer = LearnedPositions(8)
    np.testing.assert_allclose(layer(x), x + layer.table.numpy()[:3], atol=1e-6)
    for start in (2, ops.convert_to_tensor(2, "int32")):
        np.testing.assert_allclose(layer(x, start=start), x + layer.table.numpy()[2:5], atol=1e-6)
    assert layer.count_params() == 8 * 4


def test_positions_beyond_the_learned_table_use_its_last_row(rng):
    x = rng.standard_normal((1, 4, 4)).astype("float32")
    layer = LearnedPositions(2)
    np.testing.assert_allclose(layer(x), x + layer.table.numpy()[[0, 1, 1, 1]], atol=1e-6)
    np.testing.assert_allclose(layer(x, start=9), x + layer.table.numpy()[[1, 1, 1, 1]], atol=1e-6)


@pytest.mark.parametrize(("initial_stddev", "stddev"), [(None, 0.25), (2.0, 2.0)])
def test_learned_positions_have_the_initial_deviation(initial_stddev, stddev):
    layer = LearnedPositions(500, initial_stddev=initial_stddev)
    layer.build((None, None, 16))
    assert np.std(layer.table) == pytest.approx(stddev, rel=0.05)

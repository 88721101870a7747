"""Colours that can be told apart, also by those who see two kinds of light where others see three."""

import itertools

import numpy as np
import pytest

from t2t_keras.pictures.colors import color, marker

# Viénot, Brettel and Mollon (1999): what protanopes and deuteranopes see of linear red, green and blue.
SEEN = {
    "everybody": np.eye(3),
    "protanopes": np.array([[0.11238, 0.88762, 0.0], [0.11238, 0.88762, 0.0], [0.00401, -0.00401, 1.0]]),
    "deuteranopes": np.array([[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]]),
}


def lightness_and_hue(shade: tuple[float, float, float], eye: str) -> np.ndarray:
    """CIE L*, a*, b* of what an eye sees: distances in them are those that people see."""
    linear = np.where(np.array(shade) > 0.04045, ((np.array(shade) + 0.055) / 1.055) ** 2.4, np.array(shade) / 12.92)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ (
        SEEN[eye] @ linear
    )
    scaled = xyz / [0.9505, 1.0, 1.089]
    x, y, z = np.where(scaled > 0.008856, np.cbrt(np.maximum(scaled, 0)), 7.787 * scaled + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("eye", SEEN)
def test_the_first_seven_differ_for_every_eye_and_can_be_seen_on_white(eye):
    seen = [lightness_and_hue(color(number), eye) for number in range(7)]
    for one, other in itertools.combinations(range(7), 2):
        assert np.linalg.norm(seen[one] - seen[other]) > 12, (one, other)
    white = lightness_and_hue((1, 1, 1), eye)
    assert all(np.linalg.norm(each - white) > 30 for each in seen)


def test_further_ones_are_lighter_and_darker():
    shades = [color(number) for number in range(21)]
    assert len(set(shades)) == 21 and color(21) == color(0)
    assert all(sum(shades[number + 7]) > sum(shades[number]) > sum(shades[number + 14]) for number in range(7))
    assert all(0 <= part <= 1 for shade in shades for part in shade)


def test_neighbours_have_other_markers():
    assert all(marker(number) != marker(number + 1) for number in range(20))

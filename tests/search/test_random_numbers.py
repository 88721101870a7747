"""The generator against published answers, and the independence of its numbers and keys."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.search.random_numbers import sentence_keys, threefry, uniform


@pytest.mark.parametrize(
    ("key", "counter", "expected"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((-1, -1), (-1, -1), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_published_answers(key, counter, expected):
    """From Random123's known-answer file: all zeros, all ones, the digits of pi."""
    actual = threefry(tuple(tf.constant(k, tf.int64) for k in key), tuple(tf.constant(c, tf.int64) for c in counter))
    assert tuple(map(int, actual)) == expected


def test_uniform_numbers_are_spread_evenly():
    numbers = uniform(tf.constant([[1, 2], [1, 3], [-7, 5]]), tf.constant(500), 8).numpy()
    assert numbers.shape == (500, 3, 8) and numbers.dtype == np.float32
    assert numbers.min() >= 0 and numbers.max() < 1
    counts, _ = np.histogram(numbers, bins=16, range=(0, 1))
    expected = numbers.size / 16
    assert ((counts - expected) ** 2 / expected).sum() < 37.7, (
        "the chi-square statistic is too large, 15 degrees of freedom, p = 0.001"
    )
    assert len(np.unique(numbers)) > 0.99 * numbers.size
    flat = numbers.reshape(-1, 8)
    assert np.abs(np.corrcoef(flat, rowvar=False) - np.eye(8)).max() < 0.1


def test_a_number_depends_only_on_key_step_and_sample():
    keys = tf.constant([[1, 2], [3, 4]])
    many = uniform(keys, tf.constant(9), 5).numpy()
    np.testing.assert_array_equal(uniform(keys[1:], tf.constant(4), 2), many[:4, 1:, :2])
    assert uniform(keys, tf.constant(0), 3).shape == (0, 2, 3)


def test_keys_depend_only_on_seed_and_tokens():
    keys = sentence_keys(7, tf.constant([[5, 6, 1, 0, 0], [6, 5, 1, 0, 0], [5, 6, 7, 8, 1]])).numpy()
    assert keys.dtype == np.int32 and len({tuple(key) for key in keys}) == 3
    np.testing.assert_array_equal(sentence_keys(7, tf.constant([[5, 6, 1]]))[0], keys[0])
    assert (sentence_keys(8, tf.constant([[5, 6, 1]])).numpy() != keys[0]).all()
    assert sentence_keys(-(2**40), tf.zeros([0, 3], tf.int32)).shape == (0, 2)


def test_keys_of_similar_sentences_differ():
    source = np.stack(np.meshgrid(np.arange(2, 34), np.arange(2, 34)), axis=-1).reshape(-1, 2).astype(np.int32)
    assert len(np.unique(sentence_keys(1, source).numpy(), axis=0)) == len(source)

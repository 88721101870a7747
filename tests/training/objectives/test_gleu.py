"""Sentence GLEU in the graph against its definition in Python."""

import random

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.training.objectives.gleu import sentence_gleu
from tests.training.plain_gleu import gleu_in_python


def padded(rows: list[list[int]], length: int) -> np.ndarray:
    return np.array([row + [0] * (length - len(row)) for row in rows], np.int32).reshape(len(rows), length)


@pytest.fixture(scope="module")
def compiled():
    ids = tf.TensorSpec([None, None], tf.int32)
    return tf.function(sentence_gleu, input_signature=[ids, ids])


@pytest.mark.parametrize("seed", range(4))
def test_equals_the_definition(compiled, seed):
    """With few words, n-grams match and repeat; some sentences have no end symbol, some no words."""
    numbers = random.Random(seed)

    def sentence(longest: int) -> list[int]:
        return numbers.choices(range(2, 5), k=numbers.randint(0, longest)) + [1] * numbers.randint(0, 1)

    pairs = [(sentence(14), sentence(9)) for _ in range(300)]
    pairs += [(reference[:cut], reference) for _, reference in pairs[:50] for cut in (1, 3, 7)]
    candidates, references = zip(*pairs, strict=True)
    expected = [gleu_in_python(*pair) for pair in pairs]
    assert len(set(expected)) > 50 and min(expected) == 0 and max(expected) == 1
    np.testing.assert_allclose(compiled(padded(candidates, 15), padded(references, 10)), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("candidate", "reference", "expected"),
    [
        ([5, 6, 7, 8, 1], [5, 6, 7, 8, 1], 1.0),
        ([5, 6, 7, 8], [5, 6, 7, 8, 1], 1.0),  # the end symbol is not a word
        ([5, 1], [5, 1], 1.0),
        ([5, 6, 7, 1], [5, 6, 9, 1], 3 / 6),  # 5, 6 and "5 6", of 3 + 2 + 1
        ([5, 5, 5, 5, 1], [5, 6, 1], 1 / 10),  # one 5 of the reference counts once
        ([5, 1], [5, 6, 7, 8, 1], 1 / 10),
        ([1], [5, 1], 0.0),
        ([1], [1], 0.0),
        ([], [], 0.0),
    ],
)
def test_manual_examples(candidate, reference, expected):
    (actual,) = sentence_gleu(padded([candidate], len(candidate)), padded([reference], len(reference)))
    assert float(actual) == pytest.approx(expected, rel=1e-6)
    assert gleu_in_python(candidate, reference) == pytest.approx(expected)


def test_no_rows():
    assert sentence_gleu(np.zeros((0, 4), np.int32), np.zeros((0, 3), np.int32)).shape == (0,)

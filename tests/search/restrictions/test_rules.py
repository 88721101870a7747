"""Excluded phrases per sentence, compared with the rule for all sentences."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.search.restrictions.rules import ExcludedPhrases, excluded_bias
from t2t_keras.search.searcher import padded_phrases

PHRASES = [[[3]], [[2, 4], [4, 4, 4]], [], [[5, 3, 2], [3], [3, 3]]]


@pytest.mark.parametrize("length", [0, 1, 2, 5])
def test_excluded_phrases_of_each_sentence(length):
    texts = np.random.default_rng(length).integers(2, 6, size=(len(PHRASES), 3, length), dtype=np.int32)
    biases = excluded_bias(tf.constant(texts), tf.constant(padded_phrases(PHRASES, at_front=True)), 7).numpy()
    for text, phrases, bias in zip(texts, PHRASES, biases, strict=True):
        expected = ExcludedPhrases(phrases)(tf.constant(text[None]), 7)[0] if phrases else np.zeros((3, 7))
        np.testing.assert_array_equal(bias, expected)
    assert np.isneginf(biases[0, :, 3]).all() and not biases[2].any()

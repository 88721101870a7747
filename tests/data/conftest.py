"""Fixtures of the tests that prepare data."""

import pytest


@pytest.fixture
def corpus():
    from tests.data.small_corpora import corpus_of, some_pairs

    return corpus_of(train=some_pairs(400, 1), valid=some_pairs(20, 2), test=some_pairs(10, 3))

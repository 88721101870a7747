"""Fixtures of the tests that prepare data."""

import pytest


@pytest.fixture
def corpus():
    from tests.data.small_corpora import corpus_of, random_pairs

    return corpus_of(train=random_pairs(400, 1), valid=random_pairs(20, 2), test=random_pairs(10, 3))

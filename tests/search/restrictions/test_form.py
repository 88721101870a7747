"""Outputs of a given form."""

import numpy as np
import pytest

from t2t_keras.config import DecodeConfig
from t2t_keras.search.restrictions.form import Form
from t2t_keras.search.searches import Searches
from t2t_keras.symbols import EOS_ID
from tests.inference import tiny

SOURCE = np.array([[5, 6, 7, 5, 8, 1], [9, 6, 1, 0, 0, 0], [340, 341, 9, 9, 1, 0]], np.int32)
FORM = Form(token_ids=(20, 30, 40), word_starts=(5, 7, 9, 341))


def test_as_many_as_words():
    assert FORM.counts(SOURCE).numpy().tolist() == [3, 1, 3]
    assert FORM.counts(np.array([[6, 1]], np.int32)).numpy().tolist() == [1]
    assert Form((3,)).counts(SOURCE).numpy().tolist() == [1, 1, 1]


@pytest.mark.parametrize("settings", [{}, {"beam_size": 1}, {"sampling": True}, {"num_groups": 2}], ids=str)
def test_every_search_keeps_to_the_form(settings):
    result = Searches(tiny.transformer(), DecodeConfig(**settings), form=FORM)(SOURCE)
    for ids, lengths, count in zip(result.token_ids.numpy(), result.lengths.numpy(), (3, 1, 3), strict=True):
        found = [tuple(row[:length]) for row, length in zip(ids, lengths, strict=True) if length]
        assert found
        for row in found:
            assert len(row) == count + 1 and row[-1] == EOS_ID and set(row[:-1]) <= set(FORM.token_ids)


def test_all_there_are_are_found_best_first():
    """Of one token: as many hypotheses as tokens, with the model's own probabilities."""
    config = DecodeConfig(length_normalization="none")
    result = Searches(tiny.transformer(), config, form=Form((20, 30, 40)))(SOURCE)
    assert [sorted(row[:3]) for row in result.token_ids.numpy()[:, :, 0].tolist()] == [[20, 30, 40]] * 3
    assert (result.lengths.numpy()[:, 3] == 0).all()
    assert (np.diff(result.scores.numpy()[:, :3]) <= 0).all()
    np.testing.assert_array_equal(result.scores.numpy()[:, :3], result.log_probs.numpy()[:, :3])

"""Outputs in a fixed form."""

import numpy as np
import pytest

from t2t_keras.config import DecodeConfig
from t2t_keras.search.restrictions.form import Form
from t2t_keras.search.searcher import Searcher
from t2t_keras.symbols import EOS_ID
from tests.inference import tiny

SOURCE = np.array([[5, 6, 7, 5, 8, 1], [9, 6, 1, 0, 0, 0], [340, 341, 9, 9, 1, 0]], np.int32)
FORM = Form(token_ids=(20, 30, 40), word_starts=(5, 7, 9, 341))


def test_a_chosen_token_after_each_word():
    layout = FORM.layout(SOURCE)
    assert layout.known.numpy().tolist() == [
        [5, 6, 0, 7, 0, 5, 8, 0],
        [9, 6, 0, 0, 0, 0, 0, 0],
        [340, 341, 0, 9, 0, 9, 0, 0],  # 340 is before the first word.
    ]
    assert layout.lengths.numpy().tolist() == [8, 3, 7] and layout.num_chosen().numpy().tolist() == [3, 1, 3]
    first = np.array([[20, 30], [40, 0], [0, 0]], np.int32)
    assert layout.prefixes(first).numpy().tolist() == [
        [5, 6, 20, 7, 30, 5, 8, 0],
        [9, 6, 40, 0, 0, 0, 0, 0],
        [340, 341, 0, 9, 0, 9, 0, 0],
    ]
    assert (layout.prefixes() == layout.known).numpy().all()


def test_a_source_without_words_has_one_chosen_token():
    layout = FORM.layout(np.array([[6, 1], [1, 0]], np.int32))
    assert layout.known.numpy().tolist() == [[6, 0], [0, 0]] and layout.lengths.numpy().tolist() == [2, 1]
    without_words = Form((3,)).layout(SOURCE)
    assert without_words.known is None and without_words.lengths.numpy().tolist() == [1, 1, 1]
    assert without_words.prefixes() is None and (without_words.prefixes(SOURCE) == SOURCE).all()


def test_limits_suffice_for_the_form_of_a_source():
    lengths = np.count_nonzero(SOURCE, axis=1)
    assert (FORM.limits(lengths) >= FORM.layout(SOURCE).lengths + 1).numpy().all()
    assert (Form((3,)).limits(lengths) == 2).numpy().all()


@pytest.mark.parametrize("settings", [{}, {"beam_size": 1}, {"sampling": True}, {"num_groups": 2}], ids=str)
def test_every_search_follows_the_form(settings):
    result = Searcher(tiny.transformer(), DecodeConfig(**settings), form=FORM)(SOURCE)
    expected = FORM.layout(SOURCE)
    sentences = zip(result.token_ids.numpy(), result.lengths.numpy(), *map(np.array, expected), strict=True)
    for ids, lengths, count, known in sentences:
        outputs = [row[:length] for row, length in zip(ids, lengths, strict=True) if length]
        assert outputs
        for row in outputs:
            assert len(row) == count + 1 and row[-1] == EOS_ID
            expected_row = np.where(known[:count], known[:count], row[:-1])
            assert (expected_row == row[:-1]).all() and set(row[:-1][known[:count] == 0]) <= set(FORM.token_ids)


@pytest.mark.parametrize("settings", [{}, {"beam_size": 1}], ids=str)
def test_a_prefix_can_set_the_first_choices(settings):
    first = np.array([[20, 30], [40, 0], [0, 0]], np.int32)
    result = Searcher(tiny.transformer(), DecodeConfig(**settings), form=FORM)(SOURCE, prefix=first)
    best = result.token_ids.numpy()[:, 0]
    assert best[0, [2, 4]].tolist() == [20, 30] and best[1, :4].tolist() == [9, 6, 40, EOS_ID]


def test_all_outputs_of_one_token_are_found_best_first():
    """There are as many hypotheses as tokens, with the model's probabilities."""
    config = DecodeConfig(length_normalization="none")
    result = Searcher(tiny.transformer(), config, form=Form((20, 30, 40)))(SOURCE)
    assert [sorted(row[:3]) for row in result.token_ids.numpy()[:, :, 0].tolist()] == [[20, 30, 40]] * 3
    assert (result.lengths.numpy()[:, 3] == 0).all()
    assert (np.diff(result.scores.numpy()[:, :3]) <= 0).all()
    np.testing.assert_array_equal(result.scores.numpy()[:, :3], result.log_probs.numpy()[:, :3])

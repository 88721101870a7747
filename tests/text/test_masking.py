"""The selection of masked spans."""

import numpy as np
import pytest

from t2t_keras.text.masking import hashed, masked_text, spans


def draw_spans(count=20_000, length=40):
    return spans(hashed(np.arange(count, dtype=np.uint64)), np.full(count, length))


def test_about_three_tenths_are_masked_in_spans_of_three():
    masked, begins = draw_spans()
    assert masked.mean() == pytest.approx(0.3, abs=0.01)
    # A span at the end of the text can be shorter, and adjacent spans count as one.
    assert masked.sum() / begins.sum() == pytest.approx(3.1, abs=0.15)
    assert (begins <= masked).all()


def test_every_place_is_masked_as_often():
    shares = draw_spans()[0].mean(axis=0)
    assert shares[5:].max() - shares[5:].min() < 0.02


def test_each_text_has_a_span_and_none_beyond_its_end():
    lengths = np.arange(1, 60)
    masked, begins = spans(hashed(np.arange(59, dtype=np.uint64)), lengths)
    assert begins.any(axis=1).all() and masked.shape == (59, 59)
    assert not masked[np.arange(59) >= lengths[:, np.newaxis]].any()


def test_the_spans_of_a_text_do_not_depend_on_the_batch():
    keys = hashed(np.arange(30, dtype=np.uint64))
    together, _ = spans(keys, np.arange(30) + 1)
    for row in (0, 7, 29):
        alone, _ = spans(keys[row : row + 1], np.array([row + 1]))
        np.testing.assert_array_equal(alone[0], together[row, : row + 1])


def test_hashes_are_those_of_splitmix64():
    """The first numbers of the generator with seed 0 (Vigna's reference)."""
    steps = np.arange(3, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15 % 2**64)
    assert [hex(n) for n in hashed(steps).tolist()] == ["0xe220a8397b1dcdaf", "0x6e789e6aa1b965f4", "0x6c45d188009454f"]


def test_words_of_a_text_are_masked_and_always_the_same_ones():
    text = " ".join(f"word{number}" for number in range(50))
    masked = masked_text(text, "<mask>")
    assert masked == masked_text(text, "<mask>")
    units = masked.split(" ")
    assert "<mask>" in units and len(units) < 50
    assert [unit for unit in text.split(" ") if unit in units] == [unit for unit in units if unit != "<mask>"]
    assert masked_text("word", "<mask>") != masked_text("words", "<mask>")
    assert sum("\xa0" in masked_text(f"{number} a\xa0b c d", "<mask>") for number in range(20)) > 5


def test_where_there_are_no_blanks_characters_are_masked():
    assert masked_text("a", "<mask>") == "<mask>"
    masked = masked_text("二人の男が通りを歩いている。", "<mask>")
    assert "<mask>" in masked.split(" ") and set("".join(masked.split(" "))) <= set(
        "二人の男が通りを歩いている。<mask>"
    )

"""Held-out sets that are drawn from the training text."""

import itertools

import pytest

from t2t_keras.config import DataConfig
from t2t_keras.data.cleaning import comparison_key
from t2t_keras.data.held_out import TextSurvey
from t2t_keras.data.prepare import prepare
from t2t_keras.data.sources.corpora import Corpus
from t2t_keras.errors import InputError

WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight")
# Two sources share each target, and every third pair occurs ten times.
PAIRS = [
    (" ".join(words), " ".join(words[1:]).upper()) for words in itertools.product(WORDS[:4], WORDS[:6], WORDS, WORDS)
]
PAIRS = [pair for number, pair in enumerate(PAIRS) for _ in range(10 if number % 3 == 0 else 1)]
UNUSABLE = [("", "x"), ("same", "same"), ("broken \ufffd", "y"), (" ", " ")]


def corpus(pairs=PAIRS, **other_splits):
    return Corpus({"train": lambda: pairs, **other_splits})


def draw_sets(base_corpus, **sizes):
    held_out = TextSurvey(base_corpus).holding_out(sizes)
    return {split: list(held_out.splits[split]()) for split in sizes}


def keys(pairs, side):
    return [comparison_key(pair[side]) for pair in pairs]


def test_usable_pairs_are_counted_once():
    assert TextSurvey(corpus(UNUSABLE + PAIRS)).pairs == len(set(PAIRS))


def test_no_sentence_is_drawn_twice():
    splits = draw_sets(corpus(UNUSABLE + PAIRS), valid=40, test=30)
    assert [len(pairs) for pairs in splits.values()] == [40, 30]
    drawn = [*splits["valid"], *splits["test"]]
    assert set(drawn) <= set(PAIRS)
    for side in (0, 1):
        assert len(set(keys(drawn, side))) == 70


def test_the_order_of_the_text_does_not_matter():
    first, second = (draw_sets(corpus(pairs), valid=20, test=20) for pairs in (PAIRS, PAIRS[::-1]))
    assert first == second
    frequent = [pair for pair in first["test"] + first["valid"] if PAIRS.count(pair) == 10]
    assert len(frequent) < 30  # A third, since repeated pairs are no more likely than others.


def test_an_existing_set_is_kept_and_excluded_from_drawing():
    test_pairs = PAIRS[:200]
    base_corpus = corpus(test=lambda: test_pairs)
    held_out = TextSurvey(base_corpus).holding_out({"valid": 20, "test": 20})
    assert held_out.splits["test"]() is test_pairs
    valid = held_out.splits["valid"]()
    for side in (0, 1):
        assert not set(keys(valid, side)) & set(keys(test_pairs, side))
    assert held_out.identity == {"drawn_valid": "20"}


def test_drawn_pairs_are_not_in_the_training_data(tmp_path):
    base_corpus = TextSurvey(corpus()).holding_out({"valid": 20, "test": 20})
    data = prepare(base_corpus, DataConfig(vocab_size=300), tmp_path / "data", report=lambda line: None)
    assert data.counts["valid"]["kept"] == data.counts["test"]["kept"] == 20
    assert data.counts["train"]["held_out"] > 40
    assert data.text("test")[0] == [source for source, _ in base_corpus.splits["test"]()]


def test_too_few_different_sentences_are_an_error():
    with pytest.raises(
        InputError, match="only 1 pairs with different sentences can be held out, but all sets together need 4"
    ):
        draw_sets(corpus([(f"source {number}", "one target") for number in range(300)]), valid=2, test=2)

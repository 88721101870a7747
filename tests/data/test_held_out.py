"""Sets that are drawn from the training text have nothing in common with each other."""

import itertools

import pytest

from t2t_keras.config import DataConfig
from t2t_keras.data.cleaning import comparison_key
from t2t_keras.data.held_out import TextSurvey
from t2t_keras.data.prepare import prepare
from t2t_keras.data.sources.corpora import Corpus
from t2t_keras.errors import InputError

WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight")
# Every target is that of two sources, and every third pair occurs ten times.
PAIRS = [
    (" ".join(words), " ".join(words[1:]).upper()) for words in itertools.product(WORDS[:4], WORDS[:6], WORDS, WORDS)
]
PAIRS = [pair for number, pair in enumerate(PAIRS) for _ in range(10 if number % 3 == 0 else 1)]
UNUSABLE = [("", "x"), ("same", "same"), ("broken \ufffd", "y"), (" ", " ")]


def corpus(pairs=PAIRS, **more):
    return Corpus({"train": lambda: pairs, **more})


def drawn(given, **sizes):
    held_out = TextSurvey(given).holding_out(sizes)
    return {split: list(held_out.splits[split]()) for split in sizes}


def keys(pairs, side):
    return [comparison_key(pair[side]) for pair in pairs]


def test_counts_the_pairs_that_can_be_used():
    """Each once."""
    assert TextSurvey(corpus(UNUSABLE + PAIRS)).pairs == len(set(PAIRS))


def test_no_sentence_is_in_two_pairs():
    splits = drawn(corpus(UNUSABLE + PAIRS), valid=40, test=30)
    assert [len(pairs) for pairs in splits.values()] == [40, 30]
    both = [*splits["valid"], *splits["test"]]
    assert set(both) <= set(PAIRS)
    for side in (0, 1):
        assert len(set(keys(both, side))) == 70


def test_is_a_function_of_the_text_and_not_of_its_order():
    first, second = (drawn(corpus(pairs), valid=20, test=20) for pairs in (PAIRS, PAIRS[::-1]))
    assert first == second
    frequent = [pair for pair in first["test"] + first["valid"] if PAIRS.count(pair) == 10]
    assert len(frequent) < 30  # as likely as others, a third, and not ten times as likely


def test_a_set_that_the_corpus_has_stays_and_nothing_of_it_is_drawn():
    own = PAIRS[:200]
    given = corpus(test=lambda: own)
    held_out = TextSurvey(given).holding_out({"valid": 20, "test": 20})
    assert held_out.splits["test"]() is own
    valid = held_out.splits["valid"]()
    for side in (0, 1):
        assert not set(keys(valid, side)) & set(keys(own, side))
    assert held_out.identity == {"drawn_valid": "20"}


def test_prepared_text_has_nothing_of_it_in_training(tmp_path):
    given = TextSurvey(corpus()).holding_out({"valid": 20, "test": 20})
    data = prepare(given, DataConfig(vocab_size=300), tmp_path / "data", report=lambda line: None)
    assert data.counts["valid"]["kept"] == data.counts["test"]["kept"] == 20
    assert data.counts["train"]["held_out"] > 40
    assert data.text("test")[0] == [source for source, _ in given.splits["test"]()]


def test_too_few_different_sentences_are_refused():
    with pytest.raises(
        InputError, match="only 1 pairs with different sentences can be held out, but all sets together need 4"
    ):
        drawn(corpus([(f"source {number}", "one target") for number in range(300)]), valid=2, test=2)

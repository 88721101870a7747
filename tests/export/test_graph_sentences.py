"""Sentences in the graph equal those of `t2t_keras.text.sentences`."""

import functools

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.sentences import paragraphs
from t2t_keras.export.graph_sentences import find_sentences
from t2t_keras.text import sentences
from tests.export import exporting

LANGUAGES = ["en", "de", "fr", "zh", "xx"]
WORDS = [
    *("Dr.", "z. B.", "z.B.", "e.g.", "p.m.", "No.", "3.", "J.", "The", "Die", "Les", "eBay", "dogs", "Hunde", "a)"),
    *("?", "!", "...", "…", "»", "« ", "“", "”", "„", '"', "'", "(", ")", "。", "！", "「", "」", "と", "猫", "\u2014"),
    *("\n", "\r\n", "\t", " ", "  ", "\u00a0", "\u2028", "\x0b", "\u3000", "\u200b", "\x01", "\x02", "\U0001f600"),
    *(".", "I", "II.", "É", "é", "2.5", "Straße", "Ivanovstr.", "ВОЛГА", "да", "\ufffd"),
    *(" a", " water", " A", " vitamin", " is"),
]


@functools.cache
def compiled(language: str):
    text = tf.TensorSpec([None], tf.string)
    return tf.function(lambda texts: find_sentences(texts, language), input_signature=[text], autograph=False)


def split_in_graph(texts: list[bytes], language: str) -> list[list[tuple[str, str]]]:
    sentences = compiled(language)(tf.constant(texts, tf.string))
    rows: list[list[tuple[str, str]]] = [[] for _ in texts]
    for text, before, row, is_first in zip(*(values.numpy().tolist() for values in sentences), strict=True):
        assert is_first == (not rows[row])
        rows[row].append((before.decode(), text.decode()))
    return rows


@pytest.mark.parametrize("language", LANGUAGES)
def test_difficult_paragraphs_equal_python(language):
    texts = [paragraph.text for paragraph in paragraphs() if language in (paragraph.language, "xx")]
    assert split_in_graph([text.encode() for text in texts], language) == [
        sentences.find_sentences(text, language) for text in texts
    ]


def test_unusual_texts_equal_python():
    for language in LANGUAGES:
        expected = [sentences.find_sentences(text, language) for text in exporting.LINES]
        assert split_in_graph(exporting.TEXTS, language) == expected
    assert split_in_graph([], "en") == []


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(LANGUAGES), st.lists(st.lists(st.sampled_from([*WORDS, " ", " ", " "]), max_size=14), max_size=3)
)
def test_any_text_equals_python(language, texts):
    lines = ["".join(words) for words in texts]
    expected = [sentences.find_sentences(line, language) for line in lines]
    assert split_in_graph([line.encode() for line in lines], language) == expected

"""Text operations in the graph equal those in Python: repair, case, white space, invalid UTF-8."""

import sys

import numpy as np
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_keras.export import graph_text as text
from t2t_keras.export import graph_truecase
from t2t_keras.text import repair, truecase

# All characters that the repair changes, and their neighbours.
UNUSUAL = (
    "\x00\x01\x08\t\n\x0b\x0c\r\x0e\x1b\x1c\x1d\x1e\x1f !\x7e\x7f\x84\x85\x86\x9f\xa0\xac\xad\xae\u1680\u2000\u200a"
    "\u200b\u200c\u200d\u200e\u200f\u2028\u2029\u202a\u202e\u202f\u205f\u2060\u2065\u2066\u2069\u206a\u3000\ufeff"
    "\ufffd\uffff\U0001f600\U0010ffffİIΣσςẞ"
)
texts = st.lists(st.text(st.one_of(st.sampled_from(UNUSUAL), st.characters(codec="utf-8")), max_size=12), max_size=20)
broken = st.lists(
    st.lists(st.sampled_from([0x20, 0x41, 0x80, 0xBF, 0xC3, 0xE2, 0xED, 0xA0, 0xF0, 0x9F, 0xFF]), max_size=9)
)


def in_graph(function, values: list) -> list[str]:
    return [value.decode("utf-8") for value in function(tf.constant(values, tf.string)).numpy()]


@settings(max_examples=60, deadline=None)
@given(texts)
def test_repaired(values):
    assert in_graph(text.repaired, values) == [repair.repair(value) for value in values]


@settings(max_examples=60, deadline=None)
@given(broken)
def test_invalid_utf8(rows):
    values = [bytes(row) for row in rows]
    assert in_graph(text.repaired, values) == [repair.repair(value.decode("utf-8", "replace")) for value in values]


@settings(max_examples=60, deadline=None)
@given(texts)
def test_lowercased(values):
    actual = in_graph(lambda texts: text.repaired(texts, lowercase=True), values)
    assert actual == [repair.repair(repair.lowercased(value)) for value in values]


@settings(max_examples=60, deadline=None)
@given(texts)
def test_stripped(values):
    assert in_graph(text.stripped, values) == [value.strip() for value in values]


beginnings = st.lists(
    st.text(st.one_of(st.sampled_from(" '\"„«(-–•{%5.aAäÄdDßİǅǆ"), st.characters(codec="utf-8")), max_size=8),
    max_size=20,
)


@settings(max_examples=60, deadline=None)
@given(beginnings)
def test_case_of_the_beginning(values):
    words = truecase.Truecaser({"a", "d", "ä", "da", "ǆa", "aä", "dd"})
    graph = graph_truecase.GraphTruecaser(words)
    lines = [value.replace("\n", "") for value in values]
    assert in_graph(graph.truecased, lines) == list(map(words.truecased, lines))
    assert in_graph(graph_truecase.capitalised, lines) == list(map(truecase.capitalised, lines))


def test_every_character():
    characters = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code <= 0xDFFF]
    lines = ["".join(part) for part in np.array_split(characters, 200)]
    for function, expected in (
        (text.repaired, repair.repair),
        (text.lowercased, repair.lowercased),
        (
            lambda lines: text.with_characters(lines, truecase.capital),
            lambda line: "".join(map(truecase.capital, line)),
        ),
        (lambda lines: text.with_characters(lines, truecase.small), lambda line: "".join(map(truecase.small, line))),
        (lambda lines: text.stripped(tf.strings.join(["x", lines])), lambda line: f"x{line}".strip()),
    ):
        assert in_graph(function, lines) == list(map(expected, lines))
    assert in_graph(text.stripped, characters) == [character.strip() for character in characters]


def test_any_shape():
    assert text.repaired(tf.constant([["A\tB "], ["C"]]), lowercase=True).numpy().tolist() == [[b"a b"], [b"c"]]
    assert text.repaired(tf.constant([], tf.string), lowercase=True).shape == [0]

"""Translations of lines from those of their parts, as in `combinations` and `join_parts`."""

import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_keras.export.joining import join_parts, select_answers
from t2t_keras.inference.translation import Translation, best_answers, combinations
from t2t_keras.inference.translation import join_parts as join_parts_in_python

K = 3
LOWEST = float(np.finfo(np.float32).min)
# There are few values, so that many sums are equal and exact in any order.
slots = st.one_of(st.none(), st.tuples(st.sampled_from(["", "A", "B", "C"]), st.integers(-4, 0)))
lines = st.lists(st.lists(st.lists(slots, min_size=K, max_size=K), max_size=4), max_size=4)


# The numbers of lines and parts are not fixed.
SIGNATURE = [
    *(tf.TensorSpec(shape, dtype) for shape, dtype in (([None], tf.int32), ([None], tf.string), ([], tf.int32))),
    *(tf.TensorSpec([None, K], dtype) for dtype in (tf.string, tf.float32, tf.bool)),
]


@functools.cache
def compiled(by_value: bool):
    @tf.function(input_signature=SIGNATURE, autograph=False)
    def run(*arguments):
        return join_parts(*arguments, "sums" if by_value else "ranks")

    return run


def sorted_slots(lines: list) -> list:
    return [[sorted(part, key=lambda slot: (slot is None, -slot[1] if slot else 0)) for part in line] for line in lines]


def blanks_of(line: list) -> list[str]:
    """Returns the white space before each part of a line."""
    return ["", " ", "\n\n", ""][: len(line)]


def arguments_of(lines: list) -> tuple:
    rows = [row for row, line in enumerate(lines) for _ in line]
    parts = list(itertools.chain.from_iterable(lines))
    cells = {
        tf.string: [[slot[0] if slot else "x" for slot in part] for part in parts],
        tf.float32: [[slot[1] if slot else -9 for slot in part] for part in parts],
        tf.bool: [[slot is not None for slot in part] for part in parts],
    }
    arrays = [tf.reshape(tf.constant(values, dtype), [-1, K]) for dtype, values in cells.items()]
    before = [blank for line in lines for blank in blanks_of(line)]
    return tf.constant(rows, tf.int32), tf.constant(before, tf.string), tf.constant(len(lines)), *arrays


def expected(parts: list, by_value: bool) -> list[tuple[str, float]]:
    rows = []
    for part in parts:
        translations = [Translation(text, float(value)) for text, value in filter(None, part)]
        rows.append(translations or [Translation("", -np.inf)])
    lists = [join_parts_in_python(row, blanks_of(parts)) for row in combinations(rows, K, by_value)]
    best = [(t.text, max(t.score, LOWEST)) for t in lists]
    return best + [("", LOWEST)] * (K - len(best))


@pytest.mark.parametrize("by_value", [True, False])
@settings(max_examples=100, deadline=None)
@given(lines)
def test_joining_equals_python(by_value, lines):
    if by_value:  # The hypotheses of a search are sorted, with unused slots last.
        lines = sorted_slots(lines)
    actual = compiled(by_value)(*arguments_of(lines))
    texts = [[text.decode() for text in row] for row in actual.texts.numpy()]
    pairs = [list(zip(*row, strict=True)) for row in zip(texts, actual.values.numpy().tolist(), strict=True)]
    assert pairs == [expected(line, by_value) for line in lines]


@functools.cache
def compiled_choice():
    @tf.function(input_signature=SIGNATURE, autograph=False)
    def run(rows, before, num_lines, texts, values, exists):
        exists &= select_answers(rows, num_lines, texts, "A")[:, tf.newaxis]
        return join_parts(rows, before, num_lines, texts, values, exists, "best")

    return run


@settings(max_examples=200, deadline=None)
@given(lines)
def test_choosing_among_parts_equals_python(lines):
    """The text A stands for no answer."""
    lines = sorted_slots(lines)
    actual = compiled_choice()(*arguments_of(lines))
    for line, texts, values in zip(lines, actual.texts.numpy(), actual.values.numpy(), strict=True):
        translations = [
            [Translation(text, float(value)) for text, value in filter(None, part)] or [Translation("", -np.inf)]
            for part in line
        ]
        expected_texts = [(t.text, max(t.score, LOWEST)) for t in best_answers(translations, K, "A")]
        expected_texts += [("", LOWEST)] * (K - len(expected_texts))
        assert [(text.decode(), value) for text, value in zip(texts, values, strict=True)] == expected_texts

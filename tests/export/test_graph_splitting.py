"""Cutting in the graph makes the same pieces as cutting in Python."""

import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_keras.export.graph_splitting import split_texts
from t2t_keras.text.splitting import split_text

# Dense with what cuts are made at.
texts = st.lists(st.text(st.sampled_from("ab  .!;：。'\")]»”\u00a0\u3000犬\U0001f600"), max_size=60), max_size=6)


@tf.function(input_signature=[tf.TensorSpec([None], tf.string), tf.TensorSpec([], tf.int32)], autograph=False)
def split(values: tf.Tensor, most: tf.Tensor):
    return split_texts(values, lambda pieces: tf.strings.length(pieces, unit="UTF8_CHAR") <= most)


def check(values: list[str], most: int) -> None:
    found = split(tf.constant(values, tf.string), most)
    expected = [
        (piece, row) for row, value in enumerate(values) for piece in split_text(value, lambda t: len(t) <= most)
    ]
    pieces = [piece.decode("utf-8") for piece in found.texts.numpy()]
    assert list(zip(pieces, found.rows.numpy().tolist(), strict=True)) == expected


@settings(max_examples=300, deadline=None)
@given(texts, st.integers(0, 12))
def test_same_pieces(values, most):
    check(values, most)


def test_long_texts():
    sentence = 'Two dogs play in the snow; one of them (the "old" one.) barks! '
    check([sentence * 300, "dog " * 5000, "", "a" * 20_000, "犬。" * 3000, " . " * 900], 40)


def test_no_text():
    check([], 5)
    check(["", " ", "\u3000"], 5)

"""Splitting of long texts in the graph equals that in Python."""

import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_keras.export.graph_splitting import split_contexts, split_texts
from t2t_keras.text.splitting import split_context, split_text

# These texts have many places where they can be split.
texts = st.lists(st.text(st.sampled_from("ab  .!;：。'\")]»”\u00a0\u3000犬\U0001f600"), max_size=60), max_size=6)


@tf.function(input_signature=[tf.TensorSpec([None], tf.string), tf.TensorSpec([], tf.int32)], autograph=False)
def split(values: tf.Tensor, limit: tf.Tensor):
    return split_texts(values, lambda pieces: tf.strings.length(pieces, unit="UTF8_CHAR") <= limit)


def assert_same_pieces(values: list[str], limit: int) -> None:
    actual = split(tf.constant(values, tf.string), limit)
    expected = [
        (piece, row) for row, value in enumerate(values) for piece in split_text(value, lambda t: len(t) <= limit)
    ]
    pieces = [piece.decode("utf-8") for piece in actual.texts.numpy()]
    assert list(zip(pieces, actual.rows.numpy().tolist(), strict=True)) == expected


@settings(max_examples=300, deadline=None)
@given(texts, st.integers(0, 12))
def test_same_pieces(values, limit):
    assert_same_pieces(values, limit)


def test_long_texts():
    sentence = 'Two dogs play in the snow; one of them (the "old" one.) barks! '
    assert_same_pieces([sentence * 300, "dog " * 5000, "", "a" * 20_000, "犬。" * 3000, " . " * 900], 40)


def test_empty_texts():
    assert_same_pieces([], 5)
    assert_same_pieces(["", " ", "\u3000"], 5)


@tf.function(input_signature=[tf.TensorSpec([None], tf.string), tf.TensorSpec([], tf.int32)], autograph=False)
def split_with_context(values: tf.Tensor, limit: tf.Tensor):
    return split_contexts(values, "<c>", lambda pieces: tf.strings.length(pieces, unit="UTF8_CHAR") <= limit)


def assert_same_pieces_with_context(values: list[str], limit: int) -> None:
    actual = split_with_context(tf.constant(values, tf.string), limit)
    expected = [
        (piece, row)
        for row, value in enumerate(values)
        for piece in split_context(value, "<c>", lambda t: len(t) <= limit)
    ]
    pieces = [piece.decode("utf-8") for piece in actual.texts.numpy()]
    assert list(zip(pieces, actual.rows.numpy().tolist(), strict=True)) == expected


words = st.text(st.sampled_from("ab .!犬"), max_size=30).map(lambda text: " ".join(text.split()))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(words, st.sampled_from(["", " <c> ", "<c>", "<c> <c>"]), words), max_size=5), st.integers(4, 30)
)
def test_same_pieces_after_a_symbol(parts, limit):
    assert_same_pieces_with_context(["".join(part) for part in parts], limit)


def test_each_piece_starts_with_the_question():
    text = "who? <c> " + "It was she. " * 20
    actual = split_context(text, "<c>", lambda t: len(t) <= 60)
    assert len(actual) > 4 and all(piece.startswith("who? <c> It was she.") and len(piece) <= 60 for piece in actual)
    assert_same_pieces_with_context([text, text[9:], text[:9], ""], 60)


def test_a_context_can_be_one_of_several_symbols():
    head_end, text = r"^(?:<2de>|<2fr>)", "It was <2fr> she. " * 9
    texts = [f"<2de> {text}", f"<2fr>{text}", text, "<2de>", "<2it> " + text]
    actual = split_contexts(tf.constant(texts), head_end, lambda pieces: tf.strings.length(pieces) <= 40)
    expected = [split_context(text, head_end, lambda t: len(t) <= 40) for text in texts]
    assert [piece.decode() for piece in actual.texts.numpy()] == [piece for pieces in expected for piece in pieces]
    assert all(piece.startswith("<2de> It was") for piece in expected[0]) and len(expected[0]) > 3

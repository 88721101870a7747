"""The subwords of tensor2tensor, in Python and in the graph."""

import random

import pytest
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.text.extension import spellings, with_symbols
from t2t_keras.text.subwords import Subwords, joined_parts, parts_of, serialized_subwords
from t2t_keras.text.tokenizer import Tokenizer

SUBWORDS = ["the_", "dog", "s_", "_", "do", ", _", ".", ". _", "12", " _", ",_"]
SUBWORDS = [*SUBWORDS, *(c for c in sorted(set("thedogs12345,. äñ\\u;06789")) if c not in SUBWORDS)]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(serialized_subwords(SUBWORDS))


def cut(tokenizer: Tokenizer, text: str) -> list[str]:
    return tokenizer.pieces(tokenizer.encode(text))


@pytest.mark.parametrize(
    "text, parts",
    [
        ("", []),
        ("Dogs bark.", ["Dogs", "bark", "."]),
        ("a, b", ["a", ", ", "b"]),
        (" a", [" ", "a"]),
        ("a ", ["a", " "]),
        ("a  b", ["a", "  ", "b"]),
        ("½ 12a é", ["½", "12a", "é"]),
        ("a_b", ["a", "_", "b"]),
    ],
)
def test_parts_by_hand(text, parts):
    assert parts_of(text) == parts
    assert joined_parts(parts) == text


@pytest.mark.parametrize(
    "text, pieces",
    [
        ("the dogs", ["the_", "dog", "s_"]),
        ("do, dog.", ["do", "_", ", _", "dog", "_", ".", "_"]),
        ("12", ["12", "_"]),
        ("_", ["\\", "u", "_"]),  # \\u
        ("\\", ["\\", "\\", "_"]),
        ("x", ["\\", "12", "0", ";", "_"]),  # \\120;
        ("t\n", ["t", "_", "\\", "1", "0", ";", "_"]),
        (" ", [" _"]),
    ],
)
def test_subwords_by_hand(tokenizer, text, pieces):
    assert cut(tokenizer, text) == pieces
    assert tokenizer.decode(tokenizer.encode(text)) == text


def texts() -> list[str]:
    rng = random.Random(1)
    alphabet = "the dogs12,. äñ_\\u;x漢\n\t½²\u3013"
    made = ["".join(rng.choice(alphabet) for _ in range(rng.randint(0, 20))) for _ in range(500)]
    return ["", " ", "  ", "_", "\\u", "dogs\\12;_", *made]


def test_texts_come_back_and_the_graph_does_the_same(tokenizer):
    graph = tokenizer.graph_tokenizer("one")
    ids = tokenizer.encode_batch(texts())
    assert [tokenizer.decode(row) for row in ids] == texts()
    assert graph.tokenize(tf.constant(texts())).to_list() == ids
    decoded = graph.detokenize(tf.ragged.constant(ids, dtype=tf.int32)).numpy()
    assert [text.decode() for text in decoded] == texts()


def test_the_graph_decodes_any_ids(tokenizer):
    rng = random.Random(2)
    ids = [[rng.randrange(tokenizer.vocab_size) for _ in range(rng.randint(0, 9))] for _ in range(500)]
    # Numbers that exceed the range of characters, and of integers.
    large = [tokenizer.entries.index(c) for c in ["\\", *"99999999999999", ";", "_"]]
    ids += [large, [*large[:8], *large[-2:]]]
    ids = [[token for token in row if token > 2] for row in ids]
    decoded = tokenizer.graph_tokenizer("two").detokenize(tf.ragged.constant(ids, dtype=tf.int32)).numpy()
    assert [text.decode() for text in decoded] == [tokenizer.decode(row) for row in ids]
    assert tokenizer.decode(large) == "\u3013"


def test_files_come_back(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "vocab.model")
    again = Tokenizer.load(tmp_path / "vocab.model")
    assert again.serialized == tokenizer.serialized and again.entries == ["<pad>", "</s>", "<unk>", *SUBWORDS]
    assert again.symbols == {} and again.sizes == {"vocab_size": len(SUBWORDS) + 3, "source_vocab_size": None}


def test_without_new_entries_the_vocabulary_is_unchanged(tokenizer):
    assert with_symbols(tokenizer, []).serialized == tokenizer.serialized
    assert spellings(tokenizer, Tokenizer(tokenizer.serialized)) == []


def test_invalid_arguments_are_rejected(tokenizer):
    with pytest.raises(ValueError, match="each character in use .* must be a subword; missing: 'a'"):
        Subwords(serialized_subwords([*SUBWORDS, "cat_"]))
    with pytest.raises(ValueError, match=r"a subword cannot be 'a\\nb'"):
        serialized_subwords(["a\nb"])
    with pytest.raises(InputError, match="tensor2tensor's subwords cannot be extended"):
        with_symbols(tokenizer, ["<2fr>"])

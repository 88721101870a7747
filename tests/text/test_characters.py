"""The record of the characters of a training text."""

import pytest

from t2t_keras.errors import InputError
from t2t_keras.text.characters import Characters
from t2t_keras.text.tokenizer import Tokenizer
from tests.inference import tiny


def test_the_record_is_stored_beside_the_vocabulary(tmp_path):
    tokenizer = Tokenizer(tiny.tokenizer().serialized)
    tokenizer.characters = Characters.learned(["ab", "b\U0001f600"], ['ä"\\'])
    tokenizer.save(tmp_path / "vocab.model")
    loaded = Tokenizer.load(tmp_path / "vocab.model")
    assert loaded.characters == Characters(frozenset("ab\U0001f600"), frozenset('ä"\\'))
    tokenizer.characters = None
    tokenizer.save(tmp_path / "vocab.model")
    assert Tokenizer.load(tmp_path / "vocab.model").characters is None


def test_records_are_joined():
    joined = Characters(frozenset("a"), frozenset("b")).union(Characters(frozenset("c"), frozenset("b")))
    assert joined == Characters(frozenset("ac"), frozenset("b"))


@pytest.mark.parametrize("content", ["", "[]", '{"source": "a"}', '{"source": 5, "target": "a"}', "\xff"])
def test_an_unreadable_record_is_named(tmp_path, content):
    path = tmp_path / "characters.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(InputError, match="characters.json: cannot read the characters of the training text"):
        Characters.load(path)

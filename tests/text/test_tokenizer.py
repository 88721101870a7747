import random
from typing import get_args

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies

from t2t_keras.config.data_config import VocabType
from t2t_keras.errors import InputError
from t2t_keras.symbols import EOS_ID, PAD_ID
from t2t_keras.text.repair import lowercased
from t2t_keras.text.tokenizer import MAX_PIECE_CHARACTERS, Tokenizer
from t2t_keras.text.truecase import Truecaser
from tests.vocabularies import train_tokenizer

WORDS = "the cat sees a small dog and Bäume über der Straße ½ Tür, 2.5 apples! Öl «gut» isn't naïve"
TEXT = strategies.text(strategies.characters(exclude_categories=["Cs"]), max_size=40)


def random_sentences(count=300):
    generator = random.Random(1)
    return [" ".join(generator.choices(WORDS.split(), k=generator.randint(2, 12))) for _ in range(count)]


SIZES = {"bpe": 360, "unigram": 305, "char": 295, "byte": 260}
every_type = pytest.mark.parametrize("vocab_type", SIZES)


def train(vocab_type, path, sentences=None, vocab_size=37000, **settings):
    """Trains a vocabulary of one type; those of characters and bytes are smaller than allowed."""
    size = SIZES[vocab_type] if vocab_type in ("bpe", "unigram") else vocab_size
    return train_tokenizer(sentences or random_sentences(), size, path, vocab_type=vocab_type, **settings)


@pytest.fixture(scope="module", params=SIZES)
def tokenizer(request, tmp_path_factory):
    return train(request.param, tmp_path_factory.mktemp("tokenizer") / "vocab.model")


@pytest.fixture(scope="module")
def is_exact(tokenizer):
    """Whether the tokenizer preserves runs of blanks."""
    return tokenizer.vocab_size in (SIZES["char"], SIZES["byte"])


@pytest.fixture(scope="module")
def graph_tokenizer(tokenizer):
    return tokenizer.graph_tokenizer()


def test_the_types_are_those_of_the_settings():
    assert set(SIZES) == set(get_args(VocabType))


def test_special_symbols_and_size(tokenizer):
    assert tokenizer.vocab_size in SIZES.values()
    assert tokenizer.pieces([0, 1, 2]) == ["<pad>", "</s>", "<unk>"]
    assert EOS_ID not in tokenizer.encode("the cat </s>")


def test_every_sentence_round_trips(tokenizer):
    sentences = random_sentences()
    assert tokenizer.decode_batch(tokenizer.encode_batch(sentences)) == sentences
    assert tokenizer.encode_batch(sentences) == [tokenizer.encode(sentence) for sentence in sentences]


@hypothesis.settings(deadline=None)
@hypothesis.given(TEXT)
def test_any_characters_come_back_but_for_runs_of_blanks(tokenizer, is_exact, text):
    expected = text.replace("▁", " ")
    if not is_exact:
        expected = " ".join(part for part in expected.split(" ") if part)
    assert tokenizer.decode(tokenizer.encode(text)) == expected


@hypothesis.settings(deadline=None)
@hypothesis.given(strategies.lists(TEXT, min_size=1, max_size=8))
def test_the_graph_gives_the_same_ids_for_any_text(tokenizer, graph_tokenizer, texts):
    assert graph_tokenizer.tokenize(texts).to_list() == tokenizer.encode_batch(texts)


@hypothesis.settings(deadline=None)
@hypothesis.given(strategies.lists(strategies.lists(strategies.integers(3, 259), max_size=20), min_size=1, max_size=8))
def test_the_graph_makes_the_same_text_of_any_ids(tokenizer, graph_tokenizer, rows):
    """This includes invalid UTF-8, which a model can produce."""
    ragged = tf.RaggedTensor.from_row_splits(
        tf.constant([id for row in rows for id in row], tf.int32), np.cumsum([0, *map(len, rows)])
    )
    texts = [text.decode() for text in graph_tokenizer.detokenize(ragged).numpy()]
    # TensorFlow Text removes some leading blanks; repaired text has none.
    assert [text.lstrip(" ") for text in texts] == [text.lstrip(" ") for text in tokenizer.decode_batch(rows)]


def test_the_graph_gives_the_same_ids_and_text_for_sentences(tokenizer, graph_tokenizer):
    sentences = [
        *random_sentences(),
        "",
        " ",
        "\t",
        "日本語 and 😀",
        "  a  b ",
        "a\u00a0b\u3000c",
        "👩‍🔬 é",
        "x" * 5000,
    ]
    tokens = graph_tokenizer.tokenize(sentences)
    assert tokens.to_list() == tokenizer.encode_batch(sentences)
    texts = [text.decode() for text in graph_tokenizer.detokenize(tokens).numpy()]
    assert texts == [text.lstrip(" ") for text in tokenizer.decode_batch(tokenizer.encode_batch(sentences))]


def test_decoding_stops_at_the_end_symbol_and_skips_padding(tokenizer):
    ids = tokenizer.encode("the cat")
    assert tokenizer.decode([PAD_ID, *ids, EOS_ID, *ids, PAD_ID]) == "the cat"
    assert tokenizer.decode([]) == tokenizer.decode([EOS_ID, *ids]) == ""


def test_ids_outside_the_vocabulary_are_named(tokenizer):
    size = tokenizer.vocab_size
    for token in (-1, size):
        with pytest.raises(ValueError, match=rf"ids must be in \[0, {size}\), got {token}"):
            tokenizer.decode([5, token])


def test_no_piece_is_longer_than_the_bound_that_cleaning_uses(tokenizer):
    assert max(map(len, tokenizer.pieces(range(3 + 256, tokenizer.vocab_size)))) <= MAX_PIECE_CHARACTERS


@every_type
@pytest.mark.parametrize("lowercase", [False, True])
def test_the_same_text_gives_the_same_file(tmp_path, vocab_type, lowercase):
    for name in ("one", "two"):
        train(vocab_type, tmp_path / name, lowercase=lowercase)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@every_type
def test_lowercasing_happens_in_the_model_and_in_the_graph(tmp_path, vocab_type):
    lowered = [sentence.lower() for sentence in random_sentences()]
    tokenizer = train(vocab_type, tmp_path / "vocab.model", lowered, lowercase=True)
    sentences = [*random_sentences(), "ÄÖÜ ẞ İstanbul ½ DŽ", "ΟΔΟΣ ΣΑΣ."]
    assert tokenizer.decode_batch(tokenizer.encode_batch(sentences)) == [lowercased(text) for text in sentences]
    assert tokenizer.graph_tokenizer().tokenize(sentences).to_list() == tokenizer.encode_batch(sentences)


@pytest.mark.parametrize("vocab_type", ["bpe", "unigram"])
def test_a_vocabulary_too_large_names_the_largest_that_works(tmp_path, vocab_type):
    arguments = {"output_path": tmp_path / "vocab.model", "vocab_type": vocab_type}
    with pytest.raises(InputError, match="vocab_size=5000 is more than the text allows") as raised:
        train_tokenizer(random_sentences(), 5000, **arguments)
    largest = int(str(raised.value).split()[-1])
    assert train_tokenizer(random_sentences(), largest, **arguments).vocab_size == largest
    with pytest.raises(InputError, match=f"the largest valid size is {largest}"):
        train_tokenizer(random_sentences(), largest + 1, **arguments)


@every_type
def test_a_vocabulary_too_small_names_the_smallest_that_works(tmp_path, vocab_type):
    arguments = {"output_path": tmp_path / "vocab.model", "vocab_type": vocab_type}
    with pytest.raises(InputError, match="vocab_size=100 is too small") as raised:
        train_tokenizer(random_sentences(), 100, **arguments)
    smallest = int(str(raised.value).split()[-1])
    tokenizer = train_tokenizer(random_sentences(), smallest, **arguments)
    assert tokenizer.vocab_size == smallest and tokenizer.decode(tokenizer.encode("big Öl")) == "big Öl"


def test_characters_are_single_ones_the_commonest_and_bytes_spell_the_others(tmp_path):
    text = ["aaaa bbb", "cc d", ""]
    complete, cut = (train("char", tmp_path / "vocab.model", text, size) for size in (37000, 262))
    assert sorted(complete.pieces(range(259, complete.vocab_size))) == ["a", "b", "c", "d", "▁"]
    assert sorted(cut.pieces(range(259, 262))) == ["a", "b", "▁"]
    assert cut.pieces(cut.encode("ad€")) == ["▁", "a", "<0x64>", "<0xE2>", "<0x82>", "<0xAC>"]
    assert cut.decode(cut.encode("ad€")) == "ad€"


def test_bytes_depend_on_no_text(tmp_path):
    one, other = (train("byte", tmp_path / "vocab.model", text) for text in (["日本"], ["aaa"]))
    assert one.serialized == other.serialized
    assert one.pieces(range(3, 260)) == [*(f"<0x{byte:02X}>" for byte in range(256)), "▁"]
    assert one.pieces(one.encode("a ä")) == ["▁", "<0x61>", "▁", "<0xC3>", "<0xA4>"]


def test_an_unknown_type_is_named(tmp_path):
    with pytest.raises(ValueError, match="vocab_type must be one of bpe, unigram, char, byte; got 'word'"):
        train_tokenizer(random_sentences(), 300, tmp_path / "vocab.model", vocab_type="word")


@pytest.mark.parametrize("vocab_type", ["bpe", "unigram", "char"])
def test_an_empty_text_is_an_error(tmp_path, vocab_type):
    with pytest.raises(InputError, match="no vocabulary of 300 entries could be trained"):
        train_tokenizer([], 300, tmp_path / "vocab.model", vocab_type=vocab_type)
    assert not list(tmp_path.iterdir())


def test_long_texts_count_as_short_ones_do(tmp_path):
    line = " ".join(["A wonderful director of many films."] * 200)  # 7,000 bytes, while SentencePiece accepts 4,192
    tokenizer = train_tokenizer([line], 320, tmp_path / "long.model")
    assert len(tokenizer.encode("wonderful director")) == 2


def test_loading_gives_the_saved_model(tokenizer, tmp_path):
    (tmp_path / "vocab.model").write_bytes(tokenizer.serialized)
    assert Tokenizer.load(tmp_path / "vocab.model").encode("the cat") == tokenizer.encode("the cat")


def test_a_missing_or_damaged_file_is_bad_input(tmp_path):
    with pytest.raises(InputError, match=r"vocab\.model: cannot read the vocabulary: No such file"):
        Tokenizer.load(tmp_path / "vocab.model")
    (tmp_path / "vocab.model").write_bytes(b"no model at all")
    with pytest.raises(InputError, match=r"vocab\.model: not a usable vocabulary"):
        Tokenizer.load(tmp_path / "vocab.model")


@pytest.mark.parametrize("vocab_type", ["bpe", "unigram", "char", "byte"])
def test_symbols_are_one_token_at_the_beginning_of_a_word(tmp_path, vocab_type):
    lines = ["a dog plays <=yes>", "two dogs play in the snow", "a girl eats an apple"] * 30
    symbols = ["<=yes>", "<=B-PER>"]
    tokenizer = train_tokenizer(lines, 280, tmp_path / "vocab.model", vocab_type=vocab_type, symbols=symbols)
    assert sorted(tokenizer.symbols) == sorted(symbols)
    assert tokenizer.encode("<=B-PER> <=yes>") == [tokenizer.symbols[symbol] for symbol in ("<=B-PER>", "<=yes>")]
    for text in ("<=B-PER> <=yes>", "a<=yes>", "dogs <=yes>s"):
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert tokenizer.graph_tokenizer().tokenize([text]).to_list() == [ids]
    plain = train_tokenizer(lines, 280, tmp_path / "plain.model", vocab_type=vocab_type)
    assert plain.symbols == {}


def test_saving_one_vocabulary_removes_separate_ones(tmp_path):
    one, other = (train_tokenizer([f"{w} dogs play"] * 30, 275, tmp_path / w, must_have_size=False) for w in "ab")
    path = tmp_path / "vocab.model"
    several = Tokenizer(one.serialized, other)
    several.truecaser = Truecaser(["the"])
    several.save(path)
    loaded = Tokenizer.load(path)
    assert loaded.source.serialized == other.serialized and loaded.truecaser.words == {"the"}
    Tokenizer(one.serialized).save(path)
    loaded = Tokenizer.load(path)
    assert loaded.source is loaded and loaded.truecaser is None


def test_long_texts_are_measured_in_bytes(tmp_path):
    line = " ".join(["Чудесный режиссёр многих фильмов."] * 100)
    assert len(line) < 4192 < len(line.encode())
    tokenizer = train_tokenizer([line], 330, tmp_path / "long.model")
    assert len(tokenizer.encode("Чудесный режиссёр")) == 2

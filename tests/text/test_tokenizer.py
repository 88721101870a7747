import random

import hypothesis
import pytest
from hypothesis import strategies

from t2t_keras.errors import InputError
from t2t_keras.symbols import EOS_ID, PAD_ID
from t2t_keras.text.repair import lowercased
from t2t_keras.text.tokenizer import MAX_PIECE_CHARACTERS, Tokenizer, train_tokenizer

WORDS = "the cat sees a small dog and Bäume über der Straße ½ Tür, 2.5 apples! Öl «gut» isn't naïve"
TEXT = strategies.text(strategies.characters(exclude_categories=("Cs",)), max_size=40)


def some_sentences(count=300):
    generator = random.Random(1)
    return [" ".join(generator.choices(WORDS.split(), k=generator.randint(2, 12))) for _ in range(count)]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return train_tokenizer(some_sentences(), 360, tmp_path_factory.mktemp("tokenizer") / "vocab.model")


@pytest.fixture(scope="module")
def graph_tokenizer(tokenizer):
    return tokenizer.graph_tokenizer()


def test_special_symbols_and_size(tokenizer):
    assert tokenizer.vocab_size == 360
    assert tokenizer.pieces([0, 1, 2]) == ["<pad>", "</s>", "<unk>"]
    assert EOS_ID not in tokenizer.encode("the cat </s>")


def test_every_sentence_comes_back(tokenizer):
    sentences = some_sentences()
    assert tokenizer.decode_batch(tokenizer.encode_batch(sentences)) == sentences
    assert tokenizer.encode_batch(sentences) == [tokenizer.encode(sentence) for sentence in sentences]


@hypothesis.settings(deadline=None)
@hypothesis.given(TEXT)
def test_any_characters_come_back_but_for_runs_of_blanks(tokenizer, text):
    expected = " ".join(part for part in text.replace("▁", " ").split(" ") if part)
    assert tokenizer.decode(tokenizer.encode(text)) == expected


@hypothesis.settings(deadline=None)
@hypothesis.given(strategies.lists(TEXT, min_size=1, max_size=8))
def test_the_graph_gives_the_same_ids_for_any_text(tokenizer, graph_tokenizer, texts):
    assert graph_tokenizer.tokenize(texts).to_list() == tokenizer.encode_batch(texts)


def test_the_graph_gives_the_same_ids_and_text_for_sentences(tokenizer, graph_tokenizer):
    sentences = [*some_sentences(), "", " ", "\t", "日本語 and 😀", "x" * 5000]
    tokens = graph_tokenizer.tokenize(sentences)
    assert tokens.to_list() == tokenizer.encode_batch(sentences)
    texts = [text.decode() for text in graph_tokenizer.detokenize(tokens).numpy()]
    assert texts == tokenizer.decode_batch(tokenizer.encode_batch(sentences))


def test_decoding_stops_at_the_end_symbol_and_skips_padding(tokenizer):
    ids = tokenizer.encode("the cat")
    assert tokenizer.decode([PAD_ID, *ids, EOS_ID, *ids, PAD_ID]) == "the cat"
    assert tokenizer.decode([]) == tokenizer.decode([EOS_ID, *ids]) == ""


@pytest.mark.parametrize("token", [-1, 360])
def test_ids_outside_the_vocabulary_are_named(tokenizer, token):
    with pytest.raises(ValueError, match=rf"ids must be in \[0, 360\), got {token}"):
        tokenizer.decode([5, token])


def test_no_piece_is_longer_than_the_bound_that_cleaning_uses(tokenizer):
    assert max(map(len, tokenizer.pieces(range(3 + 256, 360)))) <= MAX_PIECE_CHARACTERS


@pytest.mark.parametrize("lowercase", [False, True])
def test_the_same_text_gives_the_same_file(tmp_path, lowercase):
    for name in ("one", "two"):
        train_tokenizer(some_sentences(), 340, tmp_path / name, lowercase)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_lowercasing_happens_in_the_model_and_in_the_graph(tmp_path):
    lowered = [sentence.lower() for sentence in some_sentences()]
    tokenizer = train_tokenizer(lowered, 340, tmp_path / "vocab.model", lowercase=True)
    sentences = [*some_sentences(), "ÄÖÜ ẞ İstanbul ½ DŽ", "ΟΔΟΣ ΣΑΣ."]
    assert tokenizer.decode_batch(tokenizer.encode_batch(sentences)) == [lowercased(text) for text in sentences]
    assert tokenizer.graph_tokenizer().tokenize(sentences).to_list() == tokenizer.encode_batch(sentences)


def test_a_vocabulary_too_large_names_the_largest_that_works(tmp_path):
    with pytest.raises(InputError, match="vocab_size=5000 is more than the text allows") as raised:
        train_tokenizer(some_sentences(), 5000, tmp_path / "vocab.model")
    largest = int(str(raised.value).split()[-1])
    assert train_tokenizer(some_sentences(), largest, tmp_path / "vocab.model").vocab_size == largest
    with pytest.raises(InputError, match=f"the largest that works is {largest}"):
        train_tokenizer(some_sentences(), largest + 1, tmp_path / "vocab.model")


def test_a_vocabulary_too_small_names_the_smallest_that_works(tmp_path):
    with pytest.raises(InputError, match="vocab_size=100 is too small") as raised:
        train_tokenizer(some_sentences(), 100, tmp_path / "vocab.model")
    smallest = int(str(raised.value).split()[-1])
    assert train_tokenizer(some_sentences(), smallest, tmp_path / "vocab.model").vocab_size == smallest


def test_no_text_is_bad_input(tmp_path):
    with pytest.raises(InputError, match="no vocabulary of 300 entries could be trained"):
        train_tokenizer([], 300, tmp_path / "vocab.model")
    assert not list(tmp_path.iterdir())


def test_loading_gives_the_saved_model(tokenizer, tmp_path):
    (tmp_path / "vocab.model").write_bytes(tokenizer.serialized)
    assert Tokenizer.load(tmp_path / "vocab.model").encode("the cat") == tokenizer.encode("the cat")


def test_a_missing_or_damaged_file_is_bad_input(tmp_path):
    with pytest.raises(InputError, match=r"vocab\.model: cannot read the vocabulary: No such file"):
        Tokenizer.load(tmp_path / "vocab.model")
    (tmp_path / "vocab.model").write_bytes(b"no model at all")
    with pytest.raises(InputError, match=r"vocab\.model: not a vocabulary that can be used here"):
        Tokenizer.load(tmp_path / "vocab.model")

"""The extension of a vocabulary."""

import io

import pytest
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from t2t_keras.errors import InputError
from t2t_keras.text.extension import spellings, with_pieces, with_symbols
from t2t_keras.text.tokenizer import Tokenizer, trained_tokenizer

OLD = ["the cat sees a small dog and big trees", "two old houses stand by the green river"] * 20
NEW = ["le chat voit un petit chien près d'une forêt", "deux vieilles maisons sont près de la rivière"] * 20
SIZES = {"bpe": 330, "unigram": 287, "char": 500}
PIECES = {"bpe": 10, "unigram": 6, "char": 3}


@pytest.fixture(scope="module", params=SIZES)
def both(request):
    """A vocabulary, and the same with two symbols and pieces of other text."""
    kind = request.param
    old = trained_tokenizer(OLD, SIZES[kind], vocab_type=kind)
    new = with_pieces(with_symbols(old, ["<2fr>", "<2de>"]), PIECES[kind], NEW, kind)
    assert new.vocab_size == old.vocab_size + 2 + PIECES[kind]
    return old, new


def test_old_entries_keep_their_ids_and_old_text_its_tokens(both):
    old, new = both
    assert new.pieces(range(old.vocab_size)) == old.pieces(range(old.vocab_size))
    for line in OLD[:2]:
        assert new.encode(line) == old.encode(line)


def test_new_text_gets_shorter_and_comes_back(both):
    old, new = both
    assert sum(map(len, new.encode_batch(NEW))) < sum(map(len, old.encode_batch(NEW)))
    assert new.decode_batch(new.encode_batch(NEW)) == NEW


def test_characters_precede_the_pieces_that_contain_them(both):
    old, new = both
    lengths = [len(piece) for piece in new.pieces(range(old.vocab_size + 2, new.vocab_size))]
    assert lengths[0] == 1
    assert "è" in new.pieces(range(new.vocab_size))
    assert sorted(lengths, key=lambda length: length > 1) == lengths


def test_a_symbol_is_one_token_in_front_of_a_word(both):
    old, new = both
    assert new.encode("<2fr> the cat")[0] == new.symbols["<2fr>"] == old.vocab_size
    assert with_symbols(new, ["<2de>"]).serialized == new.serialized


def test_the_graph_gives_the_same_tokens(both):
    _, new = both
    lines = [*OLD[:2], *NEW[:2], "<2fr> le chat"]
    assert new.graph_tokenizer().tokenize(lines).to_list() == new.encode_batch(lines)


def test_each_new_entry_is_spelled_in_old_ones(both):
    old, new = both
    spelled = spellings(old, new)
    texts = [piece.replace("▁", " ") for piece in new.pieces(range(old.vocab_size, new.vocab_size))]
    assert [old.decode(ids) for ids in spelled] == [text.removeprefix(" ") for text in texts]
    assert [old.pieces(ids)[0].startswith("▁") for ids in spelled] == [text.startswith(" ") for text in texts]
    assert spellings(new, new) == []


def test_another_vocabulary_has_no_spellings(both):
    old, new = both
    with pytest.raises(ValueError, match="must begin with the entries"):
        spellings(new, old)
    model = sentencepiece_model_pb2.ModelProto.FromString(new.serialized)
    model.normalizer_spec.add_dummy_prefix = False
    with pytest.raises(ValueError, match="must begin with the entries"):
        spellings(old, type(old)(model.SerializeToString()))


def test_a_lowercase_vocabulary_stays_lowercase():
    old = trained_tokenizer(OLD, 330, lowercase=True)
    new = with_pieces(old, 5, [line.upper() for line in NEW], "bpe", lowercase=True)
    assert new.encode("LE CHAT") == new.encode("le chat")
    assert all(piece == piece.lower() for piece in new.pieces(range(old.vocab_size, new.vocab_size)))


def test_differently_normalised_vocabularies_keep_capitals():
    written = io.BytesIO()
    special = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    sizes = {"vocab_size": 330, "model_type": "bpe", "byte_fallback": True, "minloglevel": 2}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(OLD), model_writer=written, normalization_rule_name="nmt_nfkc", **special, **sizes
    )
    old = Tokenizer(written.getvalue())
    new = with_pieces(old, 40, [line.upper() for line in NEW], "bpe")
    assert {"L", "CH"} <= {piece.strip("▁") for piece in new.pieces(range(old.vocab_size, new.vocab_size))}
    assert new.decode(new.encode("LE CHAT")) == "LE CHAT"


def test_invalid_extensions_are_rejected():
    old = trained_tokenizer(OLD, 330)
    with pytest.raises(InputError, match=r"--extend_vocab=5000: the text has only \d+ new pieces"):
        with_pieces(old, 5000, NEW, "bpe")
    with pytest.raises(InputError, match="bytes already covers every text"):
        with_pieces(trained_tokenizer([], 260, vocab_type="byte"), 1, NEW, "byte")

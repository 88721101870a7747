"""A translator with a tokenizer that is not the package's."""

import pytest

from t2t_keras.config import DecodeConfig
from t2t_keras.inference.request import Request
from t2t_keras.inference.translator import Translator
from t2t_keras.models.transformer import Transformer
from t2t_keras.text.text_tokenizer import TextTokenizer, content_ids
from t2t_keras.text.tokenizer import Tokenizer
from tests.inference import tiny

LETTERS = "abcdefgh"
SIZES = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 16, "d_ff": 24, "num_heads": 2}


class Letters(TextTokenizer):
    """Each letter is a token; blanks are lost."""

    vocab_size = 3 + len(LETTERS)

    def encode(self, text):
        return [3 + LETTERS.index(letter) for letter in text if letter in LETTERS]

    def decode(self, ids):
        return "".join(LETTERS[token - 3] for token in content_ids(ids) if token > 2)

    def pieces(self, ids):
        return [["<pad>", "</s>", "<unk>", *LETTERS][token] for token in ids]


@pytest.fixture(scope="module")
def translator() -> Translator:
    model = Transformer.from_preset("tiny", vocab_size=Letters.vocab_size, **SIZES)
    return Translator(Letters(), model, DecodeConfig(beam_size=2, max_length_offset=4))


def test_four_members_suffice(translator):
    translation, prefixed = translator.translate(["abc", Request("de", prefix="ha")])
    assert set(translation.text) <= set(LETTERS) and translation.num_tokens <= 4 + 4
    assert prefixed.text.startswith("ha")
    (score,) = translator.score(["abc"], [translation.text])
    assert score.pieces == (*translation.text, "</s>")


def test_what_needs_beginnings_of_words_is_refused(translator):
    with pytest.raises(ValueError, match="entries do not mark the beginnings of words, so words cannot be excluded"):
        translator.translate([Request("abc", excluded=("a",))])
    with pytest.raises(ValueError, match="word alignment is not available: the vocabulary's entries do not mark"):
        translator.align_tokens([], [])


def test_a_missing_member_is_named():
    class Half:
        vocab_size, source, marks_words, continuations, truecaser = 11, None, False, (), None
        encode = encode_batch = decode = pieces = len

    model = Transformer.from_preset("tiny", vocab_size=11, **SIZES)
    with pytest.raises(ValueError, match="`tokenizer`: Half has no `symbols`; see TextTokenizer in t2t_keras.text"):
        Translator(Half(), model)
    with pytest.raises(ValueError, match="`tokenizer`: NoneType has no `vocab_size`"):
        Translator(None, model)
    assert isinstance(Letters(), TextTokenizer) and not isinstance(Half(), TextTokenizer)


def test_the_tokenizer_of_the_package_is_one():
    tokenizer = tiny.tokenizer()
    assert isinstance(tokenizer, Tokenizer) and isinstance(tokenizer, TextTokenizer)


def test_only_the_words_that_are_marked_continue():
    class Marked(Letters):
        marks_words = True

        def pieces(self, ids):
            return [["<pad>", "</s>", "<unk>", "▁a", "b", *["▁c", "d", "▁e", "f", "▁g", "h"]][token] for token in ids]

    assert Letters().continuations == ()
    assert Marked().continuations == (4, 6, 8, 10)

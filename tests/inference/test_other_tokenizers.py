"""Translation with a custom tokenizer."""

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


class LetterTokenizer(TextTokenizer):
    """A tokenizer of letters, which drops blanks."""

    vocab_size = 3 + len(LETTERS)

    def encode(self, text):
        return [3 + LETTERS.index(letter) for letter in text if letter in LETTERS]

    def decode(self, ids):
        return "".join(LETTERS[token - 3] for token in content_ids(ids) if token > 2)

    def pieces(self, ids):
        return [["<pad>", "</s>", "<unk>", *LETTERS][token] for token in ids]


@pytest.fixture(scope="module")
def translator() -> Translator:
    model = Transformer.from_preset("tiny", vocab_size=LetterTokenizer.vocab_size, **SIZES)
    return Translator(LetterTokenizer(), model, DecodeConfig(beam_size=2, max_length_offset=4))


def test_minimal_tokenizer(translator):
    translation, prefixed = translator.translate(["abc", Request("de", prefix="ha")])
    assert set(translation.text) <= set(LETTERS) and translation.num_tokens <= 4 + 4
    assert prefixed.text.startswith("ha")
    (score,) = translator.score(["abc"], [translation.text])
    assert score.pieces == (*translation.text, "</s>")


def test_options_that_need_word_boundaries_are_rejected(translator):
    with pytest.raises(ValueError, match="entries do not mark the beginnings of words, so words cannot be excluded"):
        translator.translate([Request("abc", excluded=("a",))])
    with pytest.raises(ValueError, match="word alignment is not available: the vocabulary's entries do not mark"):
        translator.align_tokens([], [])


def test_missing_members_of_a_tokenizer():
    class IncompleteTokenizer:
        vocab_size, source, marks_words, continuations, truecaser = 11, None, False, (), None
        encode = encode_batch = decode = pieces = len

    model = Transformer.from_preset("tiny", vocab_size=11, **SIZES)
    with pytest.raises(
        ValueError, match="`tokenizer`: IncompleteTokenizer has no `symbols`; see TextTokenizer in t2t_keras.text"
    ):
        Translator(IncompleteTokenizer(), model)
    with pytest.raises(ValueError, match="`tokenizer`: NoneType has no `vocab_size`"):
        Translator(None, model)
    assert isinstance(LetterTokenizer(), TextTokenizer) and not isinstance(IncompleteTokenizer(), TextTokenizer)


def test_tokenizer_implements_the_interface():
    tokenizer = tiny.tokenizer()
    assert isinstance(tokenizer, Tokenizer) and isinstance(tokenizer, TextTokenizer)


def test_continuations_are_pieces_without_a_mark():
    class MarkedTokenizer(LetterTokenizer):
        marks_words = True

        def pieces(self, ids):
            return [["<pad>", "</s>", "<unk>", "▁a", "b", *["▁c", "d", "▁e", "f", "▁g", "h"]][token] for token in ids]

    assert LetterTokenizer().continuations == ()
    assert MarkedTokenizer().continuations == (4, 6, 8, 10)

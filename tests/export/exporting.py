"""A small translator whose export is tested, and texts for it that are no ordinary sentences."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parent.parent / "decoding"))

import tiny

from t2t_keras.config import Config, DataConfig, DecodeConfig
from t2t_keras.decoding.translator import Translator
from t2t_keras.model import Transformer

# So small that odd texts are cut into parts, and that a request runs in several batches.
MAX_LENGTH = 24
DECODE = DecodeConfig(beam_size=3, max_length_offset=8, tokens_per_batch=150)

TEXTS = [
    *(sentence.encode() for sentence in tiny.SENTENCES),
    b"",
    b" \t ",
    "\u00a0 \u3000".encode(),
    "\u200b\ufeff".encode(),
    b"A\tman\x00 is\r\nstanding\x1b",
    "日本 \U0001f600\u200d\U0001f525 ½ İΣ".encode(),
    b"<pad> </s> <unk> \xe2\x96\x81 \xe2\x81\x87",
    b"\xff\xfe A man",
    b"dogs \xed\xa0\x80\xc3",
    b"\xf0\x9f\x98 Hund \xe9",
    b"Two dogs play. " * 12,
    b"dog " * 50,
    b"a" * 200,
    "犬".encode() * 30,
    "Er ruft: „Hunde!“ (Zwei.) ... Schnee? ".encode() * 4 + b"\xa0",
    b" . " * 30,
]


def transformer() -> Transformer:
    """An untrained model that is sure of what it says: its weights are larger than those that training begins with."""
    model = Transformer(tiny.transformer().config)
    model.build()
    model.set_weights([1.7 * weight for weight in tiny.transformer().get_weights()])
    return model


def translator(config: DecodeConfig = DECODE, **arguments) -> Translator:
    return Translator(tiny.tokenizer(), transformer(), config, max_source_length=MAX_LENGTH, **arguments)


def config_of(translator: Translator) -> Config:
    data = DataConfig(vocab_size=tiny.tokenizer().vocab_size, max_length=MAX_LENGTH, lowercase=translator.lowercase)
    return Config(model=translator.model.config, data=data)


# What a `Translator` is given in place of the bytes.
LINES = [text.decode("utf-8", "replace") for text in TEXTS]

import pathlib
from collections.abc import Iterable
from typing import Any

from t2t_keras.text.tokenizer import Tokenizer, trained_tokenizer


def train_tokenizer(
    sentences: Iterable[str], vocab_size: int, output_path: str | pathlib.Path, **settings: Any
) -> Tokenizer:
    """Trains a vocabulary like `trained_tokenizer`, and writes its file."""
    tokenizer = trained_tokenizer(sentences, vocab_size, **settings)
    tokenizer.save(output_path)
    return tokenizer

"""The preparation of lines for the model of a run or an export; imports neither TensorFlow nor Keras."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from t2t_keras.config import Config, DataConfig, DecodeConfig
from t2t_keras.errors import InputError
from t2t_keras.tasks.registry import task
from t2t_keras.text.language_codes import Languages
from t2t_keras.text.protection.preparation import Preparation
from t2t_keras.text.protection.spans import NOTHING, SpanFinder
from t2t_keras.text.text_tokenizer import TextTokenizer


def with_decode_changes(config: Config, changes: Mapping[str, Any]) -> Config:
    """Returns the settings of an export with a server's changes to the decoding settings."""
    if not task(config.data.task).has_sentences:
        return config  # the server may also have models for translation, to which the changes apply
    return dataclasses.replace(config, decode=dataclasses.replace(config.decode, **changes))


def preparation(tokenizer: TextTokenizer, config: DecodeConfig, data: DataConfig) -> Preparation:
    """Returns the preparation of lines for a model.

    Args:
        tokenizer: the tokenizer, with the characters that the model knows.
        config: the decoding settings.
        data: the settings of the training data.

    Raises:
        InputError: a protected kind or expression is not valid, or the task does not support the settings.
    """
    kind = task(data.task)
    if not kind.has_sentences:
        for name, value in (("case", config.case != "exact"), ("protect", set(config.protect) - {NOTHING})):
            if value:
                raise InputError(f"decode.{name}: not supported for the task {data.task}, only for translation")
    symbols = tokenizer.source.symbols
    known = tokenizer.characters.source.union(*symbols) if tokenizer.characters and kind.has_sentences else None
    finder = SpanFinder(config.protect, known, data.lowercases_sources)

    def num_tokens(text: str) -> int:
        return len(tokenizer.source.encode(text))

    return Preparation(
        finder,
        Languages(data.source_language, data.target_language),
        num_tokens if config.case == "fallback" else None,
        lowercases=data.lowercases_sources,
        splits=config.split == "sentences",
        symbols=symbols,
    )

"""Loads runs, exports and ensembles as the parts of a `Translator`."""

import dataclasses
import os
from collections.abc import Sequence
from typing import get_args

from t2t_keras.config import Config
from t2t_keras.config.decode_config import ComputeType, EngineName
from t2t_keras.errors import InputError
from t2t_keras.inference.ctranslate2_engine import CTranslate2Engine
from t2t_keras.inference.translator_settings import TranslatorSettings
from t2t_keras.models.contract import SearchedModel
from t2t_keras.runs.load import load_model
from t2t_keras.runs.run import Run
from t2t_keras.search.engines import Engine, TensorFlowEngine
from t2t_keras.search.ensemble import Combination, Ensemble
from t2t_keras.text.tokenizer import Tokenizer, vocabulary_files


@dataclasses.dataclass(frozen=True)
class Loaded:
    """The parts of a `Translator`.

    Attributes:
        model: the model with its weights.
        tokenizer: the tokenizer with its vocabulary.
        config: the run's configuration.
        excluded: words or phrases that no translation may contain, from an export.
    """

    model: SearchedModel
    tokenizer: Tokenizer
    config: Config
    excluded: tuple[str, ...]


def engine_of(settings: TranslatorSettings, longest_source: int) -> Engine:
    """Returns the engine of a translator.

    Args:
        settings: the settings of the translator.
        longest_source: maximum number of tokens of a source, end symbol included.

    Raises:
        InputError: the engine or the compute type is unknown, or the TensorFlow engine is combined with a compute type
            other than "float32".
    """
    engine, compute_type = settings.engine, settings.compute_type
    if compute_type not in get_args(ComputeType):
        raise InputError(f"compute_type={compute_type!r}: valid: {', '.join(map(repr, get_args(ComputeType)))}")
    if engine == "ctranslate2":
        return CTranslate2Engine(compute_type, longest_source)
    if compute_type != "float32":
        raise InputError(f"compute_type={compute_type!r} requires engine='ctranslate2'")
    if engine == "tensorflow":
        return TensorFlowEngine()
    if isinstance(engine, str | type) or not hasattr(engine, "searcher"):
        names = ", ".join(map(repr, get_args(EngineName)))
        raise InputError(f"engine={engine!r}: valid: {names}, or an engine object")
    return engine


def load_run(model_dir: str | os.PathLike[str], checkpoint: str | None = None) -> Loaded:
    """Loads the model of a run or an export; see `Translator.load`.

    Raises:
        InputError: the run or the checkpoint does not exist, the size of the vocabulary is not the model's, or the
            truecased words are missing.
    """
    model, config, vocab_path = load_model(model_dir, checkpoint)
    tokenizer = Tokenizer.load(vocab_path)
    for name, size in tokenizer.sizes.items():
        if size != (expected := getattr(config.model, name)):
            raise InputError(f"{vocab_path} has {size} entries, the model of {model_dir} expects {expected} ({name})")
    if config.data.truecase and tokenizer.truecaser is None:
        raise InputError(f"{vocabulary_files(vocab_path)[2]} is missing: the model of {model_dir} requires its words")
    return Loaded(model, tokenizer, config, Run(model_dir).excluded)


def load_ensemble(
    members: Sequence[tuple[str | os.PathLike[str], str | None]], combination: Combination = "probabilities"
) -> Loaded:
    """Loads the models of several runs or checkpoints as one `Ensemble`; see `Translator.load_ensemble`.

    The tokenizer and the configuration are the first member's, except that `data.max_length` is the smallest of all
    members, and every phrase that any member excludes is excluded.

    Raises:
        InputError: a member cannot be loaded, the vocabularies differ, or the members were trained on text of different
            case.
        ValueError: there is no member, or the combination is unknown.
    """
    loaded = [load_run(*member) for member in members]
    ensemble = Ensemble([member.model for member in loaded], combination)
    names = [os.fspath(member[0]) for member in members]
    for name, member in zip(names, loaded, strict=True):
        first, other = loaded[0].tokenizer, member.tokenizer
        if difference := _vocabulary_difference(first, other) or _vocabulary_difference(first.source, other.source):
            raise InputError(f"{names[0]} and {name} have different vocabularies: {difference}")
        for setting in ("lowercase", "truecase"):
            cases = [getattr(each.config.data, setting) for each in (loaded[0], member)]
            if cases[0] != cases[1]:
                raise InputError(f"{names[0]} was trained with data.{setting}={cases[0]}, {name} with {cases[1]}")
    max_length = min(member.config.data.max_length for member in loaded)
    config = loaded[0].config
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, max_length=max_length))
    excluded = dict.fromkeys(text for member in loaded for text in member.excluded)
    return Loaded(ensemble, loaded[0].tokenizer, config, tuple(excluded))


def _vocabulary_difference(one: Tokenizer, other: Tokenizer) -> str:
    """Describes the first difference between two vocabularies; returns "" if there is none."""
    if one.vocab_size != other.vocab_size:
        return f"{one.vocab_size:,} and {other.vocab_size:,} entries"
    for number, pieces in enumerate(zip(*(t.pieces(range(t.vocab_size)) for t in (one, other)), strict=True)):
        if pieces[0] != pieces[1]:
            return f"entry {number} is {pieces[0]!r} in one and {pieces[1]!r} in the other"
    return ""

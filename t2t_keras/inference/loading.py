"""Loads runs, exports and ensembles as the parts of a `Translator`."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Literal, cast

from t2t_keras.config import Config
from t2t_keras.errors import InputError
from t2t_keras.lite import LiteEngine, LiteModel
from t2t_keras.machine.streams import threads_per_stream
from t2t_keras.models.contract import LITE, AttentionStacks, SearchedModel
from t2t_keras.runs.load import RunCheckpoint, load_model
from t2t_keras.runs.run import Run
from t2t_keras.search.engines import Engine, TensorFlowEngine
from t2t_keras.search.ensemble import Combination, Ensemble
from t2t_keras.text.tokenizer import Tokenizer

EngineName = Literal["tensorflow", "lite", "lite_int8"]


@dataclasses.dataclass(frozen=True)
class Loaded:
    """The parts of a `Translator`.

    Attributes:
        model: the model with its weights.
        engine: the engine that runs its searches.
        tokenizer: the tokenizer with its vocabulary.
        config: the run's configuration.
        excluded: words or phrases that no translation may contain, from an export.
    """

    model: SearchedModel
    engine: Engine
    tokenizer: Tokenizer
    config: Config
    excluded: tuple[str, ...] = ()


def load_run(
    model_dir: str | os.PathLike[str], checkpoint: str | None = None, engine: EngineName = "tensorflow"
) -> Loaded:
    """Loads the model of a run or an export; see `Translator.load`.

    Raises:
        InputError: no such run or checkpoint, a vocabulary of another size, or an engine that does not run this model.
    """
    model, config, vocab_path = load_model(model_dir, checkpoint)
    tokenizer = Tokenizer.load(vocab_path)
    for name, size in tokenizer.sizes.items():
        if size != (expected := getattr(config.model, name)):
            raise InputError(f"{vocab_path} has {size} entries, the model of {model_dir} expects {expected} ({name})")
    excluded = Run(model_dir).excluded
    if engine == "tensorflow":
        return Loaded(model, TensorFlowEngine(), tokenizer, config, excluded)
    if LITE not in model.offers:
        raise InputError(
            f"the engine {engine} does not run this model of the family {config.model.family} with its settings; "
            "use --engine=tensorflow"
        )
    lite = LiteModel(cast(AttentionStacks, model), int8=engine == "lite_int8", threads=threads_per_stream())
    return Loaded(lite, LiteEngine([lite]), tokenizer, config, excluded)


def load_ensemble(
    members: Sequence[RunCheckpoint], combination: Combination = "probabilities", engine: EngineName = "tensorflow"
) -> Loaded:
    """Loads the models of several runs or checkpoints as one `Ensemble`; see `Translator.load_ensemble`.

    The tokenizer and the configuration are the first member's, but `data.max_length` is the smallest of all.

    Raises:
        InputError: a member cannot be loaded, or vocabularies or the training texts' case differ.
        ValueError: no member, or an unknown combination.
    """
    loaded = [load_run(*member, engine) for member in members]
    ensemble = Ensemble([member.model for member in loaded], combination)
    models = ensemble.models
    runs = TensorFlowEngine() if engine == "tensorflow" else LiteEngine([cast(LiteModel, model) for model in models])
    names = [os.fspath(member[0]) for member in members]
    for name, member in zip(names, loaded, strict=True):
        ours, theirs = loaded[0].tokenizer, member.tokenizer
        if difference := _vocabulary_difference(ours, theirs) or _vocabulary_difference(ours.source, theirs.source):
            raise InputError(f"{names[0]} and {name} have different vocabularies: {difference}")
        if member.config.data.lowercase != loaded[0].config.data.lowercase:
            raise InputError(f"of {names[0]} and {name} only one was trained on lowercased text")
    max_length = min(member.config.data.max_length for member in loaded)
    config = loaded[0].config
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, max_length=max_length))
    return Loaded(ensemble, runs, loaded[0].tokenizer, config, loaded[0].excluded)


def _vocabulary_difference(one: Tokenizer, other: Tokenizer) -> str:
    """The first difference between two vocabularies; empty if there is none."""
    if one.vocab_size != other.vocab_size:
        return f"{one.vocab_size:,} and {other.vocab_size:,} entries"
    for number, pieces in enumerate(zip(*(t.pieces(range(t.vocab_size)) for t in (one, other)), strict=True)):
        if pieces[0] != pieces[1]:
            return f"entry {number} is {pieces[0]!r} in one and {pieces[1]!r} in the other"
    return ""

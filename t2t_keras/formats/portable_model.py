"""A Transformer in a form that is independent of any file format, and checks that readers and writers share."""

import dataclasses
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from t2t_keras.config import Config, DataConfig, DecodeConfig, TransformerConfig
from t2t_keras.errors import InputError, named
from t2t_keras.formats.arrangement import Tables
from t2t_keras.formats.tensor_names import Arrays, LayerNames, check_all_known, weights_of
from t2t_keras.models.families import make_model
from t2t_keras.models.weights import weight_names
from t2t_keras.text.subwords import MAGIC
from t2t_keras.text.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class PortableModel:
    """A Transformer that was read from one format, or that will be written in another.

    Attributes:
        config: the settings of the model and of its search, and what is known about its data.
        weights: float32 arrays, by the names of `models.weights.weight_names`.
        tokenizer: the vocabulary, or the vocabularies of both sides.
        notes: remarks for the user about the conversion, one line each.
        knows_languages: whether the languages in `config.data` are known to be the model's, and not just the defaults.
    """

    config: Config
    weights: Mapping[str, np.ndarray]
    tokenizer: Tokenizer
    notes: tuple[str, ...] = ()
    knows_languages: bool = True

    @property
    def sizes(self) -> TransformerConfig:
        """The settings of the network."""
        model = self.config.model
        if type(model) is not TransformerConfig:  # a derived class belongs to a different family
            raise InputError(f"formats of other projects do not support a model of the family {model.family}")
        return model

    @property
    def has_subwords(self) -> bool:
        """Whether a vocabulary consists of tensor2tensor's subwords, which SentencePiece cannot read."""
        return any(side.serialized.startswith(MAGIC) for side in (self.tokenizer, self.tokenizer.source))


# Other projects divide a score by a power of the hypothesis's length. `length_normalization` by exponent.
NORMALIZATIONS = {0.0: "none", 1.0: "average"}
# Settings that do not need a note when an engine lacks them; `task_notes` names the tag.
_WITHOUT_EFFECT = ("tokens_per_batch", "seed", "bfloat16", "tag")


def normalization(exponent: float) -> dict[str, Any]:
    """Returns the settings of a search that divides scores by length^exponent, or the closest available settings."""
    if exponent in NORMALIZATIONS:
        return {"length_normalization": NORMALIZATIONS[exponent]}
    return {"length_penalty": exponent}


def penalty_notes(exponent: float) -> tuple[str, ...]:
    """Returns a note if `normalization` only approximates this exponent."""
    if exponent in NORMALIZATIONS:
        return ()
    return (
        f"the original search divides scores by length^{exponent:g}; this project uses a different formula, so some "
        "translations differ",
    )


def search_notes(decode: DecodeConfig, supported: Sequence[str], engine: str) -> tuple[str, ...]:
    """Returns a note that lists the search settings that differ from the defaults and that `engine` ignores.

    `supported` are the names of the settings that the engine supports.
    """
    omissions = [
        f"decode.{field.name}={getattr(decode, field.name)}"
        for field in dataclasses.fields(decode)
        if field.name not in (*supported, *_WITHOUT_EFFECT) and getattr(decode, field.name) != field.default
    ]
    return (f"the search of {engine} does not support {', '.join(omissions)}",) if omissions else ()


def task_notes(config: Config, engine: str) -> tuple[str, ...]:
    """Returns notes on the tag of sources, which `engine` does not add, and on tasks whose outputs are processed."""
    notes: tuple[str, ...] = ()
    if tag := config.decode.tag:
        notes = (f"each text must begin with the tag {tag}, which {engine} does not add",)
    if (task := config.data.task) != DataConfig.task:
        notes = (*notes, f"{engine} returns the raw output of the model; it does not support the task {task}")
    return notes


def text_notes(model: PortableModel, engine: str) -> tuple[str, ...]:
    """Returns notes on pre- and post-processing of text that `engine`, which only runs the model, does not do."""
    notes = task_notes(model.config, engine)
    source, letters = model.tokenizer.source, string.ascii_uppercase
    # A vocabulary trained on lowercased text may lowercase its input itself.
    if model.config.data.lowercases_sources and source.encode(letters) != source.encode(letters.lower()):
        notes = (f"lowercase each text before {engine} reads it, because the training text was lowercased", *notes)
    if model.config.data.truecase:
        notes = (
            *notes,
            f"capitalise the first letter of each output of {engine}, because training lowered it",
        )
    return notes


def weight_shapes(config: TransformerConfig) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of a model's weights by name."""
    model = make_model(config)
    return {
        name: tuple(weight.shape) for name, weight in zip(weight_names(model), model.trainable_variables, strict=True)
    }


def assembled(
    path: Path, tensors: Arrays, config: TransformerConfig, tables: Tables, layers: LayerNames, ignored: Sequence[str]
) -> dict[str, np.ndarray]:
    """Converts a format's tensors to this project's weights.

    Args:
        path: the file of the tensors, for error messages.
        tensors: the format's tensors by name.
        config: the settings of the model.
        tables: the embedding and output matrices, with rows in the order of this project's token ids.
        layers: the format's names of the tensors of layers.
        ignored: prefixes of the names of tensors that do not belong to layers: those in `tables`, and optional ones.

    Raises:
        InputError: a tensor is missing, unknown, or has the wrong shape; names `path` and the tensor.
    """
    entries = list(layers.entries(config))
    for table in tables.weights(config).values():
        if table.shape[-1] not in (config.d_model, config.vocab_size):
            width = table.shape[-1]
            raise InputError(f"{path}: the embedding matrices must have {config.d_model} columns, got {width}")
    with named(path):
        check_all_known(tensors, entries, ignored)
        return {**weights_of(tensors, entries, weight_shapes(config)), **tables.weights(config)}


def check_model(path: Path | str, model: PortableModel) -> None:
    """Checks the settings of a model, and the names, shapes and values of its weights.

    Raises:
        InputError: a setting is invalid, or a weight is missing, unknown, of the wrong shape, or not finite; names
            `path`, and the setting or the weight.
    """
    with named(path):
        Config.from_dict(model.config.to_dict())
    expected = weight_shapes(model.sizes)
    shapes = {name: tuple(array.shape) for name, array in model.weights.items()}
    for name in sorted(expected.keys() | shapes.keys()):
        if name not in shapes:
            raise InputError(f"{path}: the weight {name} is missing")
        if name not in expected:
            raise InputError(f"{path}: the weight {name} does not belong to this model")
        if shapes[name] != expected[name]:
            raise InputError(f"{path}: {name} must have shape {list(expected[name])}, got {list(shapes[name])}")
    for name, array in model.weights.items():
        if not np.all(np.isfinite(array)):
            raise InputError(f"{path}: {name} has values that are infinite or NaN")


def with_wider_layers(tensors: Arrays, start: str, increase: int) -> dict[str, np.ndarray]:
    """Adds `increase` hidden units to the feed-forward networks of layers whose names begin with `start`.

    All weights of the new units are 0. They output 0 for any input, because relu, swish and gelu of 0 are 0, so the
    networks compute the same function as before.
    """
    axes = {"fc1.weight": 0, "fc1.bias": 0, "fc2.weight": 1}
    result = dict(tensors)
    for name, array in tensors.items():
        axis = next((axis for end, axis in axes.items() if name.startswith(start) and name.endswith(end)), None)
        if axis is not None and axis < array.ndim:
            result[name] = np.pad(array, [(0, increase * (place == axis)) for place in range(array.ndim)])
    return result


def check_expressible(config: TransformerConfig, format: str, **requirements: Any) -> None:
    """Checks that a format can express a Transformer.

    All formats require keys and values of width d_model / num_heads, scaled dot-product attention without a window, and
    no experts.

    Args:
        config: the settings of the model.
        format: the name of the format, for error messages.
        **requirements: names of further fields of `config`, with the values that the format requires.

    Raises:
        InputError: the format cannot express a setting; names the format and all such settings.
    """
    d_head = config.d_model // config.num_heads
    common = {"num_experts": 0, "attention_score": "scaled_dot", "attention_window": None}
    violations = [
        f"model.{name}={getattr(config, name)}"
        for name, value in {**common, **requirements}.items()
        if (getattr(config, name) or value) != value
    ]
    violations += [
        f"model.{name}={width}"
        for name, width in zip(("d_key", "d_value"), config.head_widths(), strict=True)
        if width != d_head
    ]
    if violations:
        raise InputError(f"{format} does not support {', '.join(violations)}")

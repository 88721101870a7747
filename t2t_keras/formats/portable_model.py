"""What a model is, whatever format its files have."""

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
from t2t_keras.text.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class PortableModel:
    """A Transformer between two formats.

    Attributes:
        config: its settings, those of its search, and what is known of its data.
        weights: float32 arrays, by the names of `models.weights.weight_names`.
        tokenizer: its vocabulary.
        notes: what somebody should know about the conversion, a line each.
        knows_languages: whether the languages in `config.data` are those of the model, and not just the usual ones.
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
        if type(model) is not TransformerConfig:  # one that is derived from it is of another family
            raise InputError(f"other projects' formats have no place for a model of the family {model.family}")
        return model


# The exponents of a hypothesis's length by which a score is divided that have a name here.
NORMALIZATIONS = {0.0: "none", 1.0: "average"}
_WITHOUT_EFFECT = ("tokens_per_batch", "seed", "bfloat16")  # on what is found


def normalization(exponent: float) -> dict[str, Any]:
    """The settings of a search that divides a score by a power of the length, or those that come nearest."""
    if exponent in NORMALIZATIONS:
        return {"length_normalization": NORMALIZATIONS[exponent]}
    return {"length_penalty": exponent}


def penalty_notes(exponent: float) -> tuple[str, ...]:
    """A note on `normalization`, where it has no more than what comes nearest."""
    if exponent in NORMALIZATIONS:
        return ()
    return (f"scores are divided by length^{exponent:g} there, by another formula here: some translations differ",)


def search_notes(decode: DecodeConfig, kept: Sequence[str], engine: str) -> tuple[str, ...]:
    """A note on settings of the search that are not among those that `engine` has, `kept`."""
    left_out = [
        f"decode.{field.name}={getattr(decode, field.name)}"
        for field in dataclasses.fields(decode)
        if field.name not in (*kept, *_WITHOUT_EFFECT) and getattr(decode, field.name) != field.default
    ]
    return (f"the search of {engine} does without {', '.join(left_out)}",) if left_out else ()


def task_notes(task: str, engine: str) -> tuple[str, ...]:
    """A note on outputs that `engine` does not make answers of, because they are no translations."""
    if task == DataConfig.task:
        return ()
    return (f"{engine} writes what the model does; it knows nothing of {task}",)


def text_notes(model: PortableModel, engine: str) -> tuple[str, ...]:
    """Notes on what this project does before and after a model, and `engine`, which has nothing but it, does not."""
    notes = task_notes(model.config.data.task, engine)
    source, letters = model.tokenizer.source, string.ascii_uppercase
    # A vocabulary that was trained on lowercased text lowercases by itself what it cuts.
    if model.config.data.lowercase and source.encode(letters) != source.encode(letters.lower()):
        notes = (f"a text must be lowercased before {engine} gets it, as the model's training text was", *notes)
    return notes


def weight_shapes(config: TransformerConfig) -> dict[str, tuple[int, ...]]:
    """The shapes of a model's weights by name."""
    model = make_model(config)
    return {
        name: tuple(weight.shape) for name, weight in zip(weight_names(model), model.trainable_variables, strict=True)
    }


def assembled(
    path: Path, tensors: Arrays, config: TransformerConfig, tables: Tables, layers: LayerNames, others: Sequence[str]
) -> dict[str, np.ndarray]:
    """Our weights of a format's tensors, by the names of layers there, and of the matrices of tokens, of our ids.

    `others` are beginnings of the names of tensors that are in `tables` or need not be. An InputError names `path`, and
    a tensor that is missing, superfluous, or has another shape.
    """
    entries = list(layers.entries(config))
    for table in tables.weights(config).values():
        if table.shape[-1] not in (config.d_model, config.vocab_size):
            raise InputError(f"{path}: a matrix of tokens is {table.shape[-1]} wide, but states are {config.d_model}")
    with named(path):
        check_all_known(tensors, entries, others)
        return {**weights_of(tensors, entries, weight_shapes(config)), **tables.weights(config)}


def check_whole(path: Path | str, model: PortableModel) -> None:
    """Refuses settings that no run can have, and weights that are no numbers or not those of such a model.

    An InputError names `path`, and the setting or the weight.
    """
    with named(path):
        Config.from_dict(model.config.to_dict())
    expected = weight_shapes(model.sizes)
    found = {name: tuple(array.shape) for name, array in model.weights.items()}
    for name in sorted(expected.keys() | found.keys()):
        if found.get(name) != expected.get(name):
            shapes = " instead of ".join(str(list(each.get(name) or ["nothing"])) for each in (found, expected))
            raise InputError(f"{path}: {name} is {shapes}")
    for name, array in model.weights.items():
        if not np.all(np.isfinite(array)):
            raise InputError(f"{path}: {name} has values that are infinite or no numbers; nothing can be computed")


def with_wider_layers(tensors: Arrays, start: str, more: int) -> dict[str, np.ndarray]:
    """The tensors with `more` units in the feed-forward networks of layers whose names begin with `start`.

    The units give 0 whatever goes in, because relu, swish and gelu of 0 are 0, so that the networks stay the same.
    """
    axes = {"fc1.weight": 0, "fc1.bias": 0, "fc2.weight": 1}
    found = dict(tensors)
    for name, array in tensors.items():
        axis = next((axis for end, axis in axes.items() if name.startswith(start) and name.endswith(end)), None)
        if axis is not None and axis < array.ndim:
            found[name] = np.pad(array, [(0, more * (place == axis)) for place in range(array.ndim)])
    return found


def check_expressible(config: TransformerConfig, format: str, **needed: Any) -> None:
    """Refuses a Transformer that a format has no place for, with an InputError that names it and each setting.

    `needed` are fields of `config`, and the value that the format needs. All formats need heads of d_model / num_heads,
    scaled scores without a window, and no experts.
    """
    d_head = config.d_model // config.num_heads
    common = {"num_experts": 0, "attention_score": "scaled_dot", "attention_window": None}
    odd = [
        f"model.{name}={getattr(config, name)}"
        for name, value in {**common, **needed}.items()
        if (getattr(config, name) or value) != value
    ]
    odd += [
        f"model.{name}={width}"
        for name, width in zip(("d_key", "d_value"), config.head_widths(), strict=True)
        if width != d_head
    ]
    if odd:
        raise InputError(f"{format} cannot have {', '.join(odd)}")

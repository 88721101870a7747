"""Reads Transformers that were trained with fairseq.

A folder has one .pt file, which is a torch checkpoint, the dictionaries dict.SOURCE.txt and dict.TARGET.txt, and a
SentencePiece model such as sentencepiece.bpe.model if the training text was tokenized with one. Without it, texts must
consist of tokens separated by blanks, as for fairseq-interactive.

Reference: https://github.com/facebookresearch/fairseq
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from t2t_keras.config import Config, DataConfig, DecodeConfig, TransformerConfig
from t2t_keras.errors import InputError, named
from t2t_keras.formats import huggingface
from t2t_keras.formats.arrangement import Tables
from t2t_keras.formats.files.setting_files import check_kinds, check_settings, number_setting, only_file, read_bytes
from t2t_keras.formats.files.torch_files import read_torch_file
from t2t_keras.formats.portable_model import PortableModel, assembled, with_wider_layers
from t2t_keras.formats.tensor_names import Arrays
from t2t_keras.formats.vocabularies import NamedIds, check_covered, mapped_vocabulary, vocabulary_sizes
from t2t_keras.layers.position import sinusoids
from t2t_keras.text.pieces import BLANK
from t2t_keras.text.sentencepiece_models import word_model

LAYERS = huggingface.LAYERS._replace(layer="{stack}.layers.{number}.{part}", final_norm="{stack}.layer_norm.{}")

_FIRST = ("<s>", "<pad>", "</s>", "<unk>")
_PAD, _EOS, _UNK = 1, 2, 3
_EPSILON = 1e-5
_POSITION_OFFSET = _PAD + 1  # fairseq's position of the first token
_STACKS = ("encoder", "decoder")
_TABLES = tuple(f"{stack}.embed_tokens.weight" for stack in _STACKS)
_OUTPUTS = ("decoder.output_projection.weight", "decoder.embed_out")
_OTHER_TENSORS = (
    *_TABLES,
    *_OUTPUTS,
    *(f"{stack}.{name}" for stack in _STACKS for name in ("version", "embed_positions.")),
)
_EXPECTED = {
    "no_token_positional_embeddings": False,
    "layernorm_embedding": False,
    "no_scale_embedding": False,
    "adaptive_input": False,
    "adaptive_softmax_cutoff": None,
    "no_cross_attention": False,
    "cross_self_attention": False,
    "encoder_layerdrop": 0,
    "decoder_layerdrop": 0,
    # Multilingual models: the language replaces the start symbol or comes before the source.
    "encoder_langtok": None,
    "decoder_langtok": False,
}
_MAX_POSITIONS = 1024
# The defaults of fairseq-generate.
_SEARCH = DecodeConfig(
    beam_size=5,
    length_normalization="average",
    patience=1.0,
    ends_within_beam=True,
    min_length=1,
    max_length_factor=0.0,
    max_length_offset=201,  # end symbol included
)


def read(folder: Path, languages: Mapping[str, str] | None = None) -> PortableModel:
    """Reads a model; see `known_formats.Reader`."""
    path = only_file(folder, "*.pt")
    settings, tensors = _read_checkpoint(path)
    tables = _tables(path, tensors)
    languages = _languages(path, settings, languages or {})
    vocabulary = mapped_vocabulary(folder, *_sides(folder, tensors, languages))
    start = tables.target[_EOS] * np.float32(tables.target.shape[1] ** 0.5)
    tables = vocabulary.tables(path, tables)
    sizes = _sizes(path, settings)
    with named(path):
        model = TransformerConfig(
            **tables.settings(vocabulary.tokenizer.has_one_id_space),
            **sizes,
            position_encoding="learned",
            max_positions=_MAX_POSITIONS,
            layer_norm_epsilon=_EPSILON,
        )
    for stack in _STACKS:
        tensors = with_wider_layers(tensors, f"{stack}.layers.", model.d_ff - settings[f"{stack}_ffn_embed_dim"])
    weights = assembled(path, tensors, model, tables, LAYERS, _OTHER_TENSORS)
    positions = [_positions(path, tensors, stack, model.d_model) for stack in _STACKS]
    positions[1][0] += start  # fairseq's decoder starts with the end symbol
    weights |= {"source_positions/table": positions[0], "target_positions/table": positions[1]}
    data = DataConfig(max_length=512, **vocabulary_sizes(vocabulary.tokenizer) | languages)
    notes = ("input must consist of tokens separated by blanks, prepared and split as the model's training text",)
    config = Config(model=model, data=data, decode=_SEARCH)
    return PortableModel(config, weights, vocabulary.tokenizer, () if list(folder.glob("*.model")) else notes)


def _read_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Reads the settings and the tensors; tensors of old versions get their current names."""
    checkpoint = read_torch_file(path)
    if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get("model"), dict):
        raise InputError(f"{path} is not a checkpoint of fairseq: it has no 'model'")
    settings = _plain_settings(path, checkpoint)
    tensors: dict[str, np.ndarray] = {}
    for name, array in checkpoint["model"].items():
        if not isinstance(name, str) or not isinstance(array, np.ndarray):
            raise InputError(f"{path}: {name!r} is not a tensor")
        if ".in_proj_" in name and (array.ndim < 1 or len(array) % 3):
            raise InputError(
                f"{path}: the tensor {name} must have rows for queries, keys and values, got {list(array.shape)}"
            )
        tensors |= _rename(name.removeprefix("model."), array)
    return settings, tensors


def _plain_settings(path: Path, checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings: "args" in old checkpoints; in newer ones, the task's and the model's in "cfg"."""
    place = "args" if checkpoint.get("args") else "cfg"
    values = checkpoint.get(place) or {}
    parts = [values]
    if place == "cfg" and isinstance(values, dict):
        parts = [values.get(name) or {} for name in ("task", "model")]
    if not all(isinstance(part, dict) for part in parts):
        raise InputError(
            f"{path}: {place!r} contains objects of a different package; save it as plain dicts and values"
        )
    settings = {name: value for part in parts for name, value in part.items()}
    if not settings:
        raise InputError(f"{path} has no settings: neither 'args' nor 'cfg'")
    return settings


def _rename(name: str, array: np.ndarray) -> dict[str, np.ndarray]:
    """Returns a tensor under its current names; until 2019, queries, keys and values shared one tensor."""
    place, _, kind = name.rpartition(".in_proj_")
    if place:
        parts = np.split(array, 3)
        return {f"{place}.{part}_proj.{kind}": each for part, each in zip("qkv", parts, strict=True)}
    norms = ["self_attn_layer_norm", "final_layer_norm"]
    if name.startswith("decoder."):
        norms.insert(1, "encoder_attn_layer_norm")
    for number, norm in enumerate(norms):
        name = name.replace(f".layer_norms.{number}.", f".{norm}.")
    return {name: array}


def _sizes(path: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Converts fairseq's settings to fields of a `TransformerConfig`."""
    check_settings(path, settings, _EXPECTED)
    numbers = ("layers", "attention_heads", "ffn_embed_dim", "embed_dim")
    check_kinds(path, settings, {f"{stack}_{name}": int for stack in _STACKS for name in numbers})
    check_kinds(path, settings, {f"{stack}_normalize_before": bool for stack in _STACKS})
    for name in ("attention_heads", "embed_dim", "normalize_before"):
        if settings[f"encoder_{name}"] != settings[f"decoder_{name}"]:
            raise InputError(f"{path}: encoder_{name} and decoder_{name} must be equal")
    activation = settings.get("activation_fn", "relu")
    if activation not in ("relu", "gelu", "swish"):
        raise InputError(f"{path}: activation_fn={activation!r} is not supported")
    inner_dropout = "activation_dropout" if "activation_dropout" in settings else "relu_dropout"
    return {
        "num_encoder_layers": settings["encoder_layers"],
        "num_decoder_layers": settings["decoder_layers"],
        "d_model": settings["encoder_embed_dim"],
        "d_ff": max(settings[f"{stack}_ffn_embed_dim"] for stack in _STACKS),
        "num_heads": settings["encoder_attention_heads"],
        "norm_position": "pre" if settings["encoder_normalize_before"] else "post",
        "activation": activation,
        "dropout_rate": number_setting(path, settings, "dropout", 0.1),
        "attention_dropout_rate": number_setting(path, settings, "attention_dropout", 0.0),
        "relu_dropout_rate": number_setting(path, settings, inner_dropout, 0.0),
    }


def _tables(path: Path, tensors: Arrays) -> Tables:
    """Returns the embedding and output matrices, with rows in the model's own id order."""
    for name in _TABLES:
        if name not in tensors:
            raise InputError(f"{path}: there is no tensor {name}")
    for name in (*_TABLES, *_OUTPUTS):
        if name in tensors and tensors[name].ndim != 2:
            raise InputError(f"{path}: the tensor {name} must be a matrix, got {list(tensors[name].shape)}")
    source, target = (np.asarray(tensors[name], np.float32) for name in _TABLES)
    outputs = [np.asarray(tensors[name], np.float32) for name in _OUTPUTS if name in tensors]
    return Tables(source, target, outputs[0] if outputs else target)


def _positions(path: Path, tensors: Arrays, stack: str, d_model: int) -> np.ndarray:
    """Returns the position encodings from the first token on, float32 [_MAX_POSITIONS, d_model]."""
    stored = tensors.get(f"{stack}.embed_positions.weight")
    if stored is None:
        return np.array(sinusoids(np.arange(_MAX_POSITIONS) + _POSITION_OFFSET, d_model, "halves"))
    rows = _POSITION_OFFSET + _MAX_POSITIONS
    if stored.ndim != 2 or stored.shape[1] != d_model or len(stored) < rows:
        raise InputError(
            f"{path}: the tensor {stack}.embed_positions.weight must have at least {rows} rows of {d_model}, got "
            f"{list(stored.shape)}"
        )
    return np.array(stored[_POSITION_OFFSET:rows], np.float32)


def _sides(folder: Path, tensors: Arrays, languages: Mapping[str, str]) -> tuple[NamedIds, NamedIds]:
    """Reads the vocabularies of targets and of sources."""
    models = sorted(folder.glob("*.model"))
    if len(models) > 1:
        raise InputError(f"{folder} has {len(models)} files *.model; one SentencePiece model is supported")
    sides = []
    for side, table in zip(("target", "source"), reversed(_TABLES), strict=True):
        names = _dictionary(folder / f"dict.{languages[f'{side}_language']}.txt", len(tensors[table]))
        if not models:
            names = [BLANK + name if name else "" for name in names]
        serialized = read_bytes(models[0]) if models else word_model(filter(None, names[len(_FIRST) :]))
        sides.append(NamedIds(names, _PAD, _EOS, _UNK, serialized))
    return sides[0], sides[1]


def _dictionary(path: Path, size: int) -> list[str]:
    """Reads the names of all ids; rows that pad a matrix to a multiple of 8 get the name ""."""
    names = list(_FIRST)
    for number, line in enumerate(read_bytes(path).decode("utf-8", "replace").split("\n"), start=1):
        line = line.rstrip("\r")
        if not line:
            continue
        symbol, blank, count = line.rpartition(" ")
        if not blank or not count.isdecimal():
            raise InputError(f"{path}, line {number}: expected 'symbol count', got {line!r}")
        names.append(symbol)
    check_covered(path, len(names), size)
    return names + [""] * (size - len(names))


def _languages(path: Path, settings: Mapping[str, Any], fallbacks: Mapping[str, str]) -> dict[str, str]:
    """Returns the languages in the settings or, where those are missing, the given ones."""
    names = {f"{side}_language": f"{side}_lang" for side in ("source", "target")}
    choices = {setting: settings.get(key) or fallbacks.get(setting) for setting, key in names.items()}
    languages = {name: language for name, language in choices.items() if language}
    if len(languages) < 2:
        raise InputError(
            f"{path} does not name its languages: source_lang or target_lang is missing; give "
            "--source_language and --target_language"
        )
    return languages

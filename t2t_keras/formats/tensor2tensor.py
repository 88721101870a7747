"""Reads Transformers that were trained with tensor2tensor.

A folder has one checkpoint of TensorFlow 1 (FILE.index and FILE.data-...), its settings in hparams.json or flags.txt,
and its subwords in a file vocab.*.

Reference: https://github.com/tensorflow/tensor2tensor
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from t2t_keras.config import Config, DataConfig, TransformerConfig
from t2t_keras.config.layer_settings import NormPosition
from t2t_keras.errors import InputError, named
from t2t_keras.formats.arrangement import Tables
from t2t_keras.formats.files.setting_files import (
    check_kinds,
    check_settings,
    number_setting,
    only_file,
    read_bytes,
    read_json,
    whole_setting,
)
from t2t_keras.formats.portable_model import PortableModel, assembled
from t2t_keras.formats.tensor_names import Arrays, LayerNames
from t2t_keras.formats.vocabularies import BARRED, check_covered
from t2t_keras.text.subwords import serialized_subwords
from t2t_keras.text.tokenizer import Tokenizer

_PARTS = {f"{part}_attention": theirs for part, theirs in (("self", "self_attention"), ("cross", "encdec_attention"))}
_NORM = "layer_prepostprocess/layer_norm/layer_norm_{}"
LAYERS = LayerNames(
    parts={
        **{
            f"{ours}/{name}": f"{theirs}/multihead_attention/{short}/{{}}"
            for ours, theirs in _PARTS.items()
            for name, short in (("query", "q"), ("key", "k"), ("value", "v"), ("output", "output_transform"))
        },
        **{f"{ours}_residual/norm": f"{theirs}/{_NORM}" for ours, theirs in _PARTS.items()},
        "feed_forward/inner": "ffn/conv1/{}",
        "feed_forward/outer": "ffn/conv2/{}",
        "feed_forward_residual/norm": f"ffn/{_NORM}",
    },
    layer="{stack}/layer_{number}/{part}",
    final_norm=f"{{stack}}/{_NORM}",
    kinds={"kernel": "kernel", "bias": "bias", "scale": "scale", "offset": "bias"},
    transposed=False,
)
_FIRST_SUBWORD = 2  # tensor2tensor's id of the first subword; <pad> is 0 and <EOS> is 1
# The row of the table of target spaces by target language, in the oldest problems, whose vocabularies have names like
# vocab.ende.32768. All problems use row 0 since release 1.5.2, which still has vocabularies of such names; names like
# vocab.translate_ende_wmt32k.32768.subwords came later.
_TARGET_SPACES = {"en": 3, "fr": 6, "de": 8, "zh": 16, "mk": 20, "cs": 21}
_SINCE_1_5_3 = "optimizer_adafactor_factored"  # a setting that shows that a model is newer
# "none" is a synonym for "".
_ORDERS: Mapping[tuple[str, ...], NormPosition] = {("n", "da"): "pre", ("", "dan"): "post"}
_EXPECTED = {
    "pos": "timing",
    "norm_type": "layer",
    "ffn_layer": "dense_relu_dense",
    "self_attention_type": "dot_product",
    "multiply_embedding_mode": "sqrt_depth",
    "proximity_bias": False,
    "causal_decoder_self_attention": True,
    "unidirectional_encoder": False,
    "hard_attention_k": 0,
}
_MATRICES = re.compile(r"symbol_modality_\d+_\d+/(shared|input_emb|target_emb|softmax)/weights_(\d+)$")
_PROBLEM = re.compile(r"translate_([a-z]{2})([a-z]{2})_(?:\w*?_(rev)\b)?")
_TRAINING_VARIABLES = ("losses_avg/", "train_stats/")
_SPACE = "target_space_embedding/kernel"


def read(folder: Path, languages: Mapping[str, str] | None = None) -> PortableModel:
    """Reads a model; see `known_formats.Reader`."""
    path = only_file(folder, "*.index")
    tensors = _read_checkpoint(path)
    settings = _settings(folder)
    vocabulary = only_file(folder, "vocab.*")
    source, target = _languages(folder, vocabulary, settings, languages or {})
    is_oldest = not vocabulary.name.startswith("vocab.translate_") and _SINCE_1_5_3 not in settings
    space = _TARGET_SPACES.get(target, 0) if is_oldest else 0
    tables, tokenizer = _tables(path, tensors, space, vocabulary)
    defaults = {"preprocess": "n", "postprocess": "da"}
    sequences = [str(settings.get(f"layer_{name}_sequence", letters)) for name, letters in defaults.items()]
    order = tuple("" if letters == "none" else letters for letters in sequences)
    if order not in _ORDERS:
        raise InputError(
            f"{folder}: layer_preprocess_sequence and layer_postprocess_sequence are {' and '.join(sequences)}; "
            "supported: n and da, none and dan"
        )
    sizes = _sizes(folder, settings)
    with named(folder):
        model = TransformerConfig(
            **tables.settings(one_id_space=True),
            **sizes,
            norm_position=_ORDERS[order],
            position_encoding="sinusoidal_halves",
            use_attention_bias=any(name.endswith("/q/bias") for name in tensors),
        )
    weights = assembled(path, tensors, model, tables, LAYERS, ("symbol_modality_", _SPACE))
    data = DataConfig(source_language=source, target_language=target, vocab_size=tokenizer.vocab_size, max_length=512)
    return PortableModel(Config(model=model, data=data), weights, tokenizer)


def _read_checkpoint(path: Path) -> dict[str, np.ndarray]:
    """Reads the tensors of a model, without the variables of its training, under their current names."""
    import tensorflow as tf  # slow to import, and only this format needs it

    try:
        reader = tf.train.load_checkpoint(str(path.with_suffix("")))
        names = [
            name
            for name in reader.get_variable_to_shape_map()
            if "training/" not in name and "/" in name and not name.startswith(_TRAINING_VARIABLES)
        ]
        tensors: dict[str, np.ndarray] = {}
        for name in names:
            tensors |= _rename(name, reader.get_tensor(name))
    except (tf.errors.OpError, IndexError, ValueError, RuntimeError) as error:
        raise InputError(f"{path} cannot be read as a checkpoint: {' '.join(str(error).split())}") from error
    return tensors


def _rename(name: str, array: np.ndarray) -> dict[str, np.ndarray]:
    """Returns a tensor under its current names.

    Until version 1.2, projections were convolutions, and one convolution could hold several projections.
    """
    name = re.sub(r"^.*?(?=(encoder|decoder)/|symbol_modality_|target_space_embedding/)", "", name)
    name = name.replace("_single/", "/").replace("/layer_postprocess/", "/layer_prepostprocess/")
    if array.ndim == 4:  # [1, 1, in, out]
        array = array[0, 0]
    for fused, parts in (("qkv_transform", "qkv"), ("kv_transform", "kv"), ("q_transform", "q")):
        if f"/{fused}/" in name:
            pieces = np.split(array, len(parts), axis=-1)
            return {name.replace(f"/{fused}/", f"/{part}/"): piece for part, piece in zip(parts, pieces, strict=True)}
    return {name: array}


def _settings(folder: Path) -> dict[str, Any]:
    """Reads the settings: those in flags.txt, which names the problem, its --hparams, and those in hparams.json."""
    path, settings = folder / "flags.txt", {}
    if path.exists():
        lines = read_bytes(path).decode("utf-8", "replace").splitlines()
        settings = dict(line.removeprefix("--").split("=", 1) for line in lines if re.match("--[^=]+=", line))
        pairs = (pair.split("=", 1) for pair in settings.get("hparams", "").split(",") if "=" in pair)
        settings |= {name: _value(value) for name, value in pairs}
    if not path.exists() or (folder / "hparams.json").exists():
        path = folder / "hparams.json"
        settings |= read_json(path)
    if settings.get("ffn_layer") == "conv_hidden_relu":  # a synonym
        settings["ffn_layer"] = "dense_relu_dense"
    check_settings(path, settings, _EXPECTED)
    check_kinds(path, settings, dict.fromkeys(("hidden_size", "filter_size", "num_heads", "num_hidden_layers"), int))
    return settings


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text.lower(), text)


def _sizes(folder: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Converts tensor2tensor's settings to fields of a `TransformerConfig`."""
    layers = settings["num_hidden_layers"]
    return {
        "num_encoder_layers": whole_setting(folder, settings, "num_encoder_layers", layers),
        "num_decoder_layers": whole_setting(folder, settings, "num_decoder_layers", layers),
        "d_model": settings["hidden_size"],
        "d_ff": settings["filter_size"],
        "num_heads": settings["num_heads"],
        "d_key": _head_width(folder, settings, "key"),
        "d_value": _head_width(folder, settings, "value"),
        "layer_norm_epsilon": number_setting(folder, settings, "norm_epsilon", 1e-6),
        "dropout_rate": number_setting(folder, settings, "layer_prepostprocess_dropout", 0.1),
        "attention_dropout_rate": number_setting(folder, settings, "attention_dropout", 0.0),
        "relu_dropout_rate": number_setting(folder, settings, "relu_dropout", 0.0),
    }


def _head_width(folder: Path, settings: Mapping[str, Any], kind: str) -> int | None:
    """Returns the width of a head's keys or values, or None if it is d_model / num_heads."""
    name, heads = f"attention_{kind}_channels", settings["num_heads"]
    channels = whole_setting(folder, settings, name, settings["hidden_size"])
    if channels == settings["hidden_size"]:
        return None
    if heads < 1 or channels % heads:
        raise InputError(f"{folder}: {name}={channels} must be a multiple of num_heads={heads}")
    return channels // heads


def _languages(
    folder: Path, vocabulary: Path, settings: Mapping[str, Any], overrides: Mapping[str, str]
) -> tuple[str, str]:
    """Returns the languages of sources and of targets: the given ones, or those in the problem's name.

    A name that ends with "_rev" has the target language first.
    """
    if len(overrides) == 2:
        return overrides["source_language"], overrides["target_language"]
    for name in (str(settings.get("problem", "")), str(settings.get("problems", "")), folder.name, vocabulary.name):
        if match := _PROBLEM.search(name):
            return (match[2], match[1]) if match[3] else (match[1], match[2])
    raise InputError(
        f"{folder} does not name its languages: no name has the form translate_ende_wmt32k; give "
        "--source_language and --target_language"
    )


def _read_subwords(path: Path) -> list[str]:
    """Reads the subwords from the id `_FIRST_SUBWORD` on."""
    try:
        lines = read_bytes(path).decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not valid UTF-8: {error}") from None
    subwords = [_unquote(line.rstrip("\r")) for line in lines if line]
    if len(subwords) < _FIRST_SUBWORD or not subwords[0].startswith("<pad>") or not subwords[1].startswith("<EOS>"):
        raise InputError(f"{path}: the first lines must be <pad> and <EOS>")
    return subwords[_FIRST_SUBWORD:]


def _unquote(line: str) -> str:
    is_quoted = len(line) > 1 and line[0] == line[-1] and line[0] in "'\""
    return line[1:-1] if is_quoted else line


def _tables(path: Path, tensors: Arrays, space: int, vocabulary: Path) -> tuple[Tables, Tokenizer]:
    """Returns the embedding and output matrices, with rows in this project's id order, and the vocabulary.

    `space` is the row of the table of target spaces, which tensor2tensor adds to every source embedding.
    """
    subwords = _read_subwords(vocabulary)
    shards: dict[str, dict[int, np.ndarray]] = {}
    for name, array in tensors.items():
        if match := _MATRICES.search(name):
            shards.setdefault(match[1], {})[int(match[2])] = np.asarray(array, np.float32)
    if odd := [name for name, parts in shards.items() if len({part.shape[1:] for part in parts.values()}) > 1]:
        raise InputError(f"{path}: the parts weights_0, weights_1, ... of {odd[0]} differ in width")
    matrices = {name: np.concatenate([parts[n] for n in sorted(parts)]) for name, parts in shards.items()}
    if "shared" in matrices:
        matrices = dict.fromkeys(("input_emb", "target_emb", "softmax"), matrices["shared"]) | matrices
    if missing := [name for name in ("input_emb", "target_emb", "softmax") if name not in matrices]:
        raise InputError(f"{path} has no matrix of tokens: neither shared nor {missing[0]} of a symbol_modality")
    tables = [matrices[name] for name in ("input_emb", "target_emb", "softmax")]
    rows = len(tables[1])
    if {array.shape for array in tables} != {tables[1].shape}:
        raise InputError(f"{path}: input_emb, target_emb and softmax differ in shape; one vocabulary is supported")
    check_covered(vocabulary, _FIRST_SUBWORD + len(subwords), rows)
    # Rows that pad a matrix take part in the softmax too, so they need entries. A token ends with its underscore, so
    # these names never occur in a text.
    unnamed = [f"_;{number}" for number in range(_FIRST_SUBWORD + len(subwords), rows)]
    # This project's third id is an unknown token, which tensor2tensor does not have.
    source, targets, output = (np.insert(matrix, _FIRST_SUBWORD, 0, axis=0) for matrix in tables)
    if (spaces := tensors.get(_SPACE)) is not None:
        if spaces.ndim != 2 or len(spaces) <= space or spaces.shape[1] != source.shape[1]:
            raise InputError(
                f"{path}: the tensor {_SPACE} must have a row {space} of {source.shape[1]}, got {list(spaces.shape)}"
            )
        vector = np.asarray(spaces, np.float32)[space]
        source = source + vector / np.float32(source.shape[1] ** 0.5)
    bias = np.zeros(rows + 1, np.float32)
    bias[_FIRST_SUBWORD] = BARRED
    try:
        tokenizer = Tokenizer(serialized_subwords([*subwords, *unnamed]))
    except ValueError as error:
        raise InputError(f"{path.parent}: the vocabulary cannot be used: {error}") from error
    return Tables(source, targets, output, bias), tokenizer

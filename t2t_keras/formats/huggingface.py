"""Reads and writes Marian models of Hugging Face's transformers, such as OPUS-MT.

A folder has config.json, the weights in model.safetensors or pytorch_model.bin, possibly in shards, source.spm,
target.spm and vocab.json.

Reference: https://huggingface.co/docs/transformers/model_doc/marian
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from t2t_keras.config import Config, DataConfig, DecodeConfig, TransformerConfig
from t2t_keras.config.layer_settings import Activation
from t2t_keras.errors import InputError, named
from t2t_keras.formats.arrangement import Tables, from_halves, with_states_at
from t2t_keras.formats.files.setting_files import (
    check_kinds,
    check_settings,
    number_setting,
    read_bytes,
    read_json,
)
from t2t_keras.formats.files.tensor_files import read_tensors, write_safetensors
from t2t_keras.formats.huggingface_search import MAX_POSITIONS, read_search
from t2t_keras.formats.portable_model import (
    NORMALIZATIONS,
    PortableModel,
    assembled,
    check_expressible,
    search_notes,
    text_notes,
    weight_shapes,
    with_wider_layers,
)
from t2t_keras.formats.tensor_names import Arrays, LayerNames, tensors_of
from t2t_keras.formats.vocabularies import (
    BARRED,
    NamedIds,
    check_covered,
    is_language,
    mapped_vocabulary,
    vocabulary_sizes,
)
from t2t_keras.layers.position import sinusoids
from t2t_keras.machine.files import write_json
from t2t_keras.symbols import EOS_ID, PAD_ID, SPECIAL, UNK_ID
from t2t_keras.text.pieces import BLANK
from t2t_keras.text.sentencepiece_models import without_symbols
from t2t_keras.text.tokenizer import Tokenizer

LAYERS = LayerNames(
    parts={
        "self_attention/query": "self_attn.q_proj.{}",
        "self_attention/key": "self_attn.k_proj.{}",
        "self_attention/value": "self_attn.v_proj.{}",
        "self_attention/output": "self_attn.out_proj.{}",
        "self_attention_residual/norm": "self_attn_layer_norm.{}",
        "cross_attention/query": "encoder_attn.q_proj.{}",
        "cross_attention/key": "encoder_attn.k_proj.{}",
        "cross_attention/value": "encoder_attn.v_proj.{}",
        "cross_attention/output": "encoder_attn.out_proj.{}",
        "cross_attention_residual/norm": "encoder_attn_layer_norm.{}",
        "feed_forward/inner": "fc1.{}",
        "feed_forward/outer": "fc2.{}",
        "feed_forward_residual/norm": "final_layer_norm.{}",
    },
    layer="model.{stack}.layers.{number}.{part}",
    final_norm="model.{stack}.layer_norm.{}",
    kinds={"kernel": "weight", "bias": "bias", "scale": "weight", "offset": "bias"},
    transposed=True,
)
_ACTIVATIONS: Mapping[str, Activation] = {"relu": "relu", "swish": "swish", "silu": "swish", "gelu": "gelu"}
_NUMBERS = (
    *("d_model", "vocab_size", "pad_token_id", "eos_token_id", "decoder_start_token_id"),
    *(f"{stack}_{name}" for stack in ("encoder", "decoder") for name in ("layers", "attention_heads", "ffn_dim")),
)
_EPSILON = 1e-5  # torch's default
# This project's search settings that transformers supports or always applies.
_SETTINGS = (
    *("beam_size", "length_penalty", "length_normalization", "no_repeat_ngram_size", "min_length"),
    "ends_within_beam",
)
_SHARED = "model.shared.weight"
_SOURCE = "model.encoder.embed_tokens.weight"
_TARGET = "model.decoder.embed_tokens.weight"
_HEAD = "lm_head.weight"
_BIAS = "final_logits_bias"
_POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
_ROWS = MAX_POSITIONS + DecodeConfig.max_length_offset  # of the tables of positions


def read(folder: Path, languages: Mapping[str, str] | None = None) -> PortableModel:
    """Reads a Marian model; see `known_formats.Reader`."""
    settings = _settings(folder / "config.json")
    path, tensors = read_tensors(folder, ("model.safetensors", "pytorch_model.bin"))
    target, source = _sides(folder, settings)
    vocabulary = mapped_vocabulary(folder, target, source)
    tables = vocabulary.tables(path, _tables(path, settings, tensors))
    start = tables.target[PAD_ID] * np.float32(settings["d_model"] ** 0.5)
    fields = tables.settings(vocabulary.tokenizer.has_one_id_space)
    if np.any(start):
        fields |= {"position_encoding": "learned", "max_positions": _ROWS}
    model = _model_config(folder / "config.json", settings, fields)
    for stack in ("encoder", "decoder"):
        tensors = with_wider_layers(tensors, f"model.{stack}.layers.", model.d_ff - settings[f"{stack}_ffn_dim"])
    _check_positions(path, tensors)
    names = (_SHARED, _SOURCE, _TARGET, _HEAD, _BIAS, *_POSITIONS)
    weights = assembled(path, tensors, model, tables, LAYERS, names)
    if np.any(start):
        weights |= _positions(start)
    data, knows_languages = _data_config(folder, vocabulary.tokenizer, languages or {})
    decode, notes = read_search(folder, settings)
    config = Config(model=model, data=data, decode=decode)
    weights = with_states_at(weights, from_halves(model.d_model))
    return PortableModel(config, weights, vocabulary.tokenizer, notes, knows_languages)


def _settings(path: Path) -> dict[str, Any]:
    settings = read_json(path)
    if settings.get("model_type") != "marian":
        raise InputError(f"{path}: model_type={settings.get('model_type')!r} is not supported, only 'marian'")
    check_kinds(path, settings, dict.fromkeys(_NUMBERS, int) | {"activation_function": str})
    if settings["encoder_attention_heads"] != settings["decoder_attention_heads"]:
        raise InputError(f"{path}: encoder_attention_heads and decoder_attention_heads must be equal")
    if settings["activation_function"] not in _ACTIVATIONS:
        raise InputError(f"{path}: activation_function={settings['activation_function']!r} is not supported")
    for name in ("pad_token_id", "eos_token_id"):
        if not 0 <= settings[name] < settings["vocab_size"]:
            raise InputError(f"{path}: {name}={settings[name]} is not one of the {settings['vocab_size']} rows")
    if settings["decoder_start_token_id"] != settings["pad_token_id"]:
        raise InputError(f"{path}: decoder_start_token_id must be pad_token_id")
    check_settings(path, settings, {"normalize_before": False, "normalize_embedding": False})
    return settings


def _sides(folder: Path, settings: Mapping[str, Any]) -> tuple[NamedIds, NamedIds]:
    """Reads the vocabularies of targets and of sources."""
    shares = settings.get("share_encoder_decoder_embeddings", True)
    target_file, target_size = "vocab.json", settings["vocab_size"]
    if not shares and (folder / "target_vocab.json").exists():
        check_kinds(folder / "config.json", settings, {"decoder_vocab_size": int})
        target_file, target_size = "target_vocab.json", settings["decoder_vocab_size"]
    target = _side(folder, target_file, target_size, "target.spm", settings)
    return target, _side(folder, "vocab.json", settings["vocab_size"], "source.spm", settings)


def _side(folder: Path, file: str, size: int, model: str, settings: Mapping[str, Any]) -> NamedIds:
    ids = read_json(folder / file)
    pieces: dict[int, str] = {}
    for piece, number in ids.items():
        if not isinstance(number, int) or not 0 <= number < size:
            raise InputError(f"{folder / file}: {piece!r} has the id {number!r}, but there are {size} rows")
        if number in pieces:
            raise InputError(f"{folder / file}: {pieces[number]!r} and {piece!r} have the same id, {number}")
        pieces[number] = piece
    check_covered(folder / file, len(ids), size)
    if "<unk>" not in ids:
        raise InputError(f"{folder / file}: there is no <unk>")
    names = [pieces.get(number, "") for number in range(size)]
    return NamedIds(names, settings["pad_token_id"], settings["eos_token_id"], ids["<unk>"], read_bytes(folder / model))


def _tables(path: Path, settings: Mapping[str, Any], tensors: Arrays) -> Tables:
    """Returns the embedding and output matrices, scaled as in this project, with rows in the model's own id order."""
    shared_table = tensors.get(_SHARED)
    decoder = tensors.get(_TARGET, tensors.get(_HEAD) if shared_table is None else shared_table)
    source = tensors.get(_SOURCE, decoder if shared_table is None else shared_table)
    if source is None or decoder is None:
        raise InputError(f"{path}: there is no tensor {_SHARED}")
    output, bias = tensors.get(_HEAD, decoder), tensors.get(_BIAS)
    arrays = [np.asarray(array, np.float32) for array in (source, decoder, output)]
    for array, name in zip(arrays, (_SOURCE, _TARGET, _HEAD), strict=True):
        if array.ndim != 2 or array.shape[1] != settings["d_model"]:
            raise InputError(
                f"{path}: the tensor {name} must have rows of {settings['d_model']}, got {list(array.shape)}"
            )
    if not settings.get("scale_embedding", False):
        arrays[:2] = [array / np.float32(settings["d_model"] ** 0.5) for array in arrays[:2]]
    has_bias = bias is not None and np.any(bias)
    source, decoder, output = arrays
    return Tables(source, decoder, output, np.asarray(bias, np.float32).reshape(-1) if has_bias else None)


def _positions(start: np.ndarray) -> dict[str, np.ndarray]:
    """Returns tables of positions that add the start symbol's embedding to the first target position.

    A Marian decoder starts with padding. Its embedding is zero unless training changed it as a row of a shared output
    matrix. In this project, the start symbol always embeds to zero.

    Args:
        start: the scaled embedding of the start symbol, float32 [d_model].

    Returns:
        The tables of sources and of targets by name, float32 [_ROWS, d_model] each.
    """
    interleaved = np.asarray(sinusoids(np.arange(_ROWS), len(start)))
    source = interleaved[:, np.argsort(from_halves(len(start)))]  # --> [rows, d_model]
    target = source.copy()
    target[0] += start
    return {"source_positions/table": source, "target_positions/table": target}


def _model_config(path: Path, settings: Mapping[str, Any], fields: Mapping[str, Any]) -> TransformerConfig:
    rates: dict[str, Any] = {
        "dropout_rate": number_setting(path, settings, "dropout", 0.1),
        "attention_dropout_rate": number_setting(path, settings, "attention_dropout", 0.0),
        "relu_dropout_rate": number_setting(path, settings, "activation_dropout", 0.0),
    }
    with named(path):
        return TransformerConfig(
            **fields,
            **rates,
            num_encoder_layers=settings["encoder_layers"],
            num_decoder_layers=settings["decoder_layers"],
            d_model=settings["d_model"],
            d_ff=max(settings["encoder_ffn_dim"], settings["decoder_ffn_dim"]),
            num_heads=settings["encoder_attention_heads"],
            layer_norm_epsilon=_EPSILON,
            activation=_ACTIVATIONS[settings["activation_function"]],
        )


def _check_positions(path: Path, tensors: Arrays) -> None:
    """Checks stored tables of positions, which old files have: the paper's positions, with all sines first."""
    for name in _POSITIONS:
        if name in tensors:
            table = np.asarray(tensors[name], np.float32)
            if table.ndim != 2 or table.shape[1] % 2:
                raise InputError(f"{path}: the tensor {name} does not contain positions, got {list(table.shape)}")
            interleaved = _sinusoids(*table.shape)
            rounding = 1e-4 if tensors[name].dtype.itemsize > 2 else 5e-3  # 16 bits: at most 2^-8 near 1
            if not np.allclose(table, interleaved[:, np.argsort(from_halves(table.shape[1]))], atol=rounding):
                raise InputError(f"{path}: the tensor {name} has different positions than transformers computes")


def _sinusoids(count: int, width: int) -> np.ndarray:
    """Computes the paper's positions in float64; in float32, angles at high positions are too imprecise to compare."""
    angles = np.arange(count)[:, np.newaxis] / 10000.0 ** (np.arange(0, width, 2) / width)  # --> [count, width / 2]
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(count, width)


def _data_config(folder: Path, tokenizer: Tokenizer, overrides: Mapping[str, str]) -> tuple[DataConfig, bool]:
    """Returns the settings of the data, and whether its languages are known."""
    path = folder / "tokenizer_config.json"
    settings = read_json(path) if path.exists() else {}
    languages = {f"{side}_language": settings.get(f"{side}_lang") for side in ("source", "target")}
    codes = {name: language for name, language in languages.items() if language} | dict(overrides)
    with named(path):
        data = DataConfig(vocab_type="unigram", max_length=MAX_POSITIONS, **codes, **vocabulary_sizes(tokenizer))
    return data, len(codes) == 2


def write(model: PortableModel, folder: Path, quantization: str = "float32") -> tuple[str, ...]:
    """Writes a Transformer as a Marian model; see `known_formats.Writer`."""
    config = model.sizes
    if quantization != "float32":
        raise InputError(f"--quantization={quantization}: transformers supports float32, and casts when it loads")
    if model.has_subwords:
        raise InputError("Marian models of transformers cannot have a vocabulary of tensor2tensor's subwords")
    check_expressible(config, "Marian of transformers", norm_position="post", position_encoding="sinusoidal")
    layers = dataclasses.replace(config, use_attention_bias=True)
    zeros = {
        name: np.zeros(shape, np.float32) for name, shape in weight_shapes(layers).items() if name.endswith("bias")
    }
    weights = with_states_at({**zeros, **model.weights}, np.argsort(from_halves(config.d_model)))
    tensors = tensors_of(weights, list(LAYERS.entries(layers))) | _tensors_of_tables(Tables.of(weights), config)
    write_safetensors(folder / "model.safetensors", tensors)
    tokenizer = model.tokenizer
    for name, side in (("source.spm", tokenizer.source), ("target.spm", tokenizer)):
        # Marian's tokenizer removes language codes such as >>fra<< from a text before it tokenizes the text.
        (folder / name).write_bytes(without_symbols(side.serialized, list(filter(is_language, side.symbols))))
    write_json(folder / "vocab.json", _ids(tokenizer.source, config))
    if config.source_vocab_size is not None:
        write_json(folder / "target_vocab.json", _ids(tokenizer, config))
    for name, values in _settings_of(model).items():
        write_json(folder / name, values)
    return _differences(model)


def _order(config: TransformerConfig, size: int) -> list[int]:
    """Returns this project's id for each id of the Marian model.

    Padding comes last in Marian, but third if there are two vocabularies, which must agree on its id.
    """
    if config.source_vocab_size is None:
        return [*range(1, size), PAD_ID]
    return [EOS_ID, UNK_ID, PAD_ID, *range(UNK_ID + 1, size)]


def _tensors_of_tables(tables: Tables, config: TransformerConfig) -> dict[str, np.ndarray]:
    """Returns the matrices and the bias as Marian's tensors; padding, with which a decoder starts, embeds to zero."""
    bias = np.zeros(config.vocab_size, np.float32) if tables.bias is None else tables.bias.copy()
    if np.any(tables.output[PAD_ID]):
        bias[PAD_ID] = BARRED  # this project's searches never write padding, whatever its logit
    arrays = []
    for table in (tables.source, tables.target, tables.output):
        order = _order(config, len(table))
        rows = table[order]
        rows[order.index(PAD_ID)] = 0
        arrays.append(np.pad(rows, ((0, _rows(config) - len(rows)), (0, 0))))
    missing = _rows(config) - len(bias)
    bias = np.pad(bias[_order(config, len(bias))], (0, missing), constant_values=BARRED)
    tensors = {_BIAS: bias[np.newaxis]}
    if config.tie_embeddings and config.source_vocab_size is None:
        return {_SHARED: arrays[0], **tensors}
    tensors |= {_SOURCE: arrays[0], _TARGET: arrays[1]}
    return tensors if config.tie_embeddings else {_HEAD: arrays[2], **tensors}


def _rows(config: TransformerConfig) -> int:
    """Returns the number of rows of each matrix, which transformers requires to be the same for both vocabularies."""
    return max(config.vocab_size, config.source_entries)


def _ids(tokenizer: Tokenizer, config: TransformerConfig) -> dict[str, int]:
    """Returns the Marian id of each piece; additional rows get names that occur in no text."""
    names = [name.removeprefix(BLANK) if is_language(name.removeprefix(BLANK)) else name for name in tokenizer.entries]
    ids = {names[entry]: number for number, entry in enumerate(_order(config, len(names)))}
    return ids | {f"<no piece {number}>": number for number in range(len(names), _rows(config))}


def _settings_of(model: PortableModel) -> dict[str, dict[str, Any]]:
    config, data, decode = model.sizes, model.config.data, model.config.decode
    order = _order(config, config.vocab_size)
    pad, eos = order.index(PAD_ID), order.index(EOS_ID)
    special = {"pad_token_id": pad, "eos_token_id": eos, "decoder_start_token_id": pad, "forced_eos_token_id": eos}
    exponents = {name: exponent for exponent, name in NORMALIZATIONS.items()}
    search = {
        "num_beams": decode.beam_size,
        "length_penalty": exponents.get(decode.length_normalization, decode.length_penalty),
        "no_repeat_ngram_size": decode.no_repeat_ngram_size,
        "min_new_tokens": decode.min_length,
        "bad_words_ids": [[pad]],
        "max_length": MAX_POSITIONS,
    }
    sizes = {"attention_heads": config.num_heads, "ffn_dim": config.d_ff}
    model_settings = {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        "is_encoder_decoder": True,
        "vocab_size": _rows(config),
        "decoder_vocab_size": _rows(config),
        "d_model": config.d_model,
        "encoder_layers": config.num_encoder_layers,
        "decoder_layers": config.num_decoder_layers,
        **{f"{stack}_{name}": size for stack in ("encoder", "decoder") for name, size in sizes.items()},
        "activation_function": config.activation,
        "dropout": config.dropout_rate,
        "attention_dropout": config.attention_dropout_rate,
        "activation_dropout": config.relu_dropout_rate,
        "max_position_embeddings": MAX_POSITIONS,
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": config.tie_embeddings and config.source_vocab_size is None,
        "tie_word_embeddings": config.tie_embeddings,
        **special,
    }
    tokenizer_settings = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": data.source_language,
        "target_lang": data.target_language,
        "separate_vocabs": not model.tokenizer.has_one_id_space,
        **{f"{name}_token": symbol for name, symbol in zip(("pad", "eos", "unk"), SPECIAL, strict=True)},
    }
    return {
        "config.json": model_settings,
        "generation_config.json": {**special, **search},
        "tokenizer_config.json": tokenizer_settings,
    }


def _differences(model: PortableModel) -> tuple[str, ...]:
    """Returns notes on differences between this project and transformers."""
    notes = []
    if model.sizes.layer_norm_epsilon != _EPSILON:
        epsilon = model.sizes.layer_norm_epsilon
        notes.append(f"transformers uses {_EPSILON} in layer normalisation, and this model {epsilon}")
    if model.config.decode.length_normalization == "gnmt" and model.config.decode.length_penalty:
        notes.append("transformers has a different length penalty: scores and some translations differ")
    search = search_notes(model.config.decode, _SETTINGS, "transformers")
    return (*notes, *search, *text_notes(model, "transformers"))

"""Reads Transformers that were trained with Marian.

A folder has one .npz file, which holds the weights and the settings, and its vocabularies: a decoder.yml that names the
vocabulary files, or a single vocab.yml for both sides. Vocabularies in YAML need source.spm and target.spm too; a
vocabulary may also be a SentencePiece model, such as vocab.spm.

Reference: https://marian-nmt.github.io
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from t2t_keras.config import Config, DataConfig, DecodeConfig, TransformerConfig
from t2t_keras.config.layer_settings import Activation, NormPosition
from t2t_keras.errors import InputError, named
from t2t_keras.formats.arrangement import Tables
from t2t_keras.formats.files.setting_files import (
    check_kinds,
    check_settings,
    number_setting,
    only_file,
    parse_yaml,
    read_bytes,
    whole_setting,
)
from t2t_keras.formats.files.tensor_files import read_npz
from t2t_keras.formats.portable_model import PortableModel, assembled, normalization, penalty_notes
from t2t_keras.formats.tensor_names import Arrays, LayerNames
from t2t_keras.formats.vocabularies import BARRED, NamedIds, mapped_vocabulary, vocabulary_sizes
from t2t_keras.symbols import UNK_ID
from t2t_keras.text.sentencepiece_models import parsed

_SETTINGS = "special:model.yml"
_NORMS = {"post": ("ln_{}", "ffn_ffn_ln_{}"), "pre": ("ln_{}_pre", "ffn_ffn_ln_{}_pre")}
_EPSILON = 1e-6
# This project's activation for each of Marian's, with the factor by which inner values must be scaled. Marian's "gelu"
# is x * sigmoid(1.702 x), which equals swish(1.702 x) / 1.702.
_ACTIVATIONS: Mapping[str, tuple[Activation, float]] = {
    "relu": ("relu", 1.0),
    "swish": ("swish", 1.0),
    "gelu": ("swish", 1.702),
}
# Settings of decoding that change translations and are not converted.
_UNSUPPORTED = (
    *("word-penalty", "max-length-factor", "max-length-crop", "output-sampling", "force-decode", "shortlist"),
    *("output-approx-knn", "n-best", "best-deep", "skip-cost"),
)
_POSITIONS = "Wpos"
_HEAD = "decoder_ff_logit_out"
_OTHER_TENSORS = ("Wemb", "encoder_Wemb", "decoder_Wemb", f"{_HEAD}_", _POSITIONS)
# Settings that must have these values if they are present.
_EXPECTED = {
    "type": "transformer",
    "transformer-decoder-autoreg": "self-attention",
    "transformer-no-projection": False,
    "transformer-no-bias": False,
    "transformer-rnn-projection": False,
    "transformer-tied-layers": [],
    "transformer-ffn-depth": 2,
    "transformer-pool": False,
    "lemma-dim-emb": 0,
    "right-left": False,  # such a model reads and writes sentences backwards
}
_NUMBERS = ("enc-depth", "dec-depth", "dim-emb", "transformer-dim-ffn", "transformer-heads")
_ESCAPE = re.compile(r"\\(?:(x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8})|(.))")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "0": "\0", "e": "\x1b", "N": "\x85", "_": "\xa0"}
_ESCAPES |= {"L": "\u2028", "P": "\u2029", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_ORDERS: Mapping[tuple[str, ...], NormPosition] = {("", "dan", ""): "post", ("n", "da", "n"): "pre"}


def layers(norm_position: str) -> LayerNames:
    """Returns Marian's names of the weights of layers; matrices are [in, out]."""
    attention_norm, feed_forward_norm = _NORMS[norm_position]
    parts = {}
    for kind, marian_kind in (("self", "self"), ("cross", "context")):
        for name in ("query", "key", "value", "output"):
            parts[f"{kind}_attention/{name}"] = f"{marian_kind}_{{}}{name[0]}"
        parts[f"{kind}_attention_residual/norm"] = f"{marian_kind}_Wo_{attention_norm}"
    return LayerNames(
        parts={
            **parts,
            "feed_forward/inner": "ffn_{}1",
            "feed_forward/outer": "ffn_{}2",
            "feed_forward_residual/norm": feed_forward_norm,
        },
        layer="{stack}_l{number}_{part}",
        final_norm="{stack}_top_ln_{}",
        kinds={"kernel": "W", "bias": "b", "scale": "scale", "offset": "bias"},
        transposed=False,
        first=1,
    )


def read(folder: Path, languages: Mapping[str, str] | None = None) -> PortableModel:
    """Reads a model; see `known_formats.Reader`."""
    path = only_file(folder, "*.npz")
    tensors = read_npz(path)
    if _SETTINGS not in tensors:
        raise InputError(f"{path} has no {_SETTINGS}: it is not a model of Marian, or is older than 2018")
    place = f"{path}, {_SETTINGS}"
    settings = parse_yaml(tensors.pop(_SETTINGS).tobytes().rstrip(b"\0"), place)
    norm_position = _norm_position(place, settings)
    tensors = {name: array[0] if array.shape[:1] == (1,) else array for name, array in tensors.items()}
    search, decode = _search(folder)
    vocabulary = mapped_vocabulary(folder, *_sides(folder, search))
    tables = vocabulary.tables(path, _tables(path, tensors, has_bias=not settings.get("output-omit-bias", False)))
    if not search.get("allow-unk", False):  # by default, Marian never writes the unknown token
        bias = np.zeros(len(tables.target), np.float32) if tables.bias is None else np.array(tables.bias, np.float32)
        bias[UNK_ID] = BARRED
        tables = tables._replace(bias=bias)
    activation, factor = _ACTIVATIONS[settings["transformer-ffn-activation"]]
    position_table = tensors.get(_POSITIONS)
    if position_table is not None and (position_table.ndim != 2 or position_table.shape[1] != settings["dim-emb"]):
        raise InputError(
            f"{path}: the tensor {_POSITIONS} must have rows of {settings['dim-emb']}, got {list(position_table.shape)}"
        )
    positions: dict[str, Any] = {"position_encoding": "sinusoidal_halves"}
    if position_table is not None:
        positions = {"position_encoding": "learned", "max_positions": len(position_table)}
    with named(place):
        model = TransformerConfig(
            **tables.settings(vocabulary.tokenizer.has_one_id_space),
            **positions,
            num_encoder_layers=settings["enc-depth"],
            num_decoder_layers=settings["dec-depth"],
            d_model=settings["dim-emb"],
            d_ff=settings["transformer-dim-ffn"],
            num_heads=settings["transformer-heads"],
            norm_position=norm_position,
            layer_norm_epsilon=_EPSILON,
            activation=activation,
        )
    weights = assembled(path, tensors, model, tables, layers(norm_position), _OTHER_TENSORS)
    if position_table is not None:
        weights |= {f"{side}_positions/table": np.asarray(position_table, np.float32) for side in ("source", "target")}
    codes: dict[str, Any] = dict(languages or {})
    data = DataConfig(vocab_type="unigram", **codes, **vocabulary_sizes(vocabulary.tokenizer))
    config, notes = Config(model=model, data=data, decode=decode), penalty_notes(search.get("normalize", 0.0))
    for name in _UNSUPPORTED:
        if value := search.get(name):
            notes += (f"{name}={value} is not converted, so some translations differ",)
    return PortableModel(config, _scale(weights, factor), vocabulary.tokenizer, notes, knows_languages=len(codes) == 2)


def _search(folder: Path) -> tuple[dict[str, Any], DecodeConfig]:
    """Reads the settings of decoding from decoder.yml or, as Marian names it, MODEL.npz.decoder.yml.

    Returns:
        Marian's settings, empty without such a file, and this project's.
    """
    paths = (folder / "decoder.yml", *sorted(folder.glob("*.decoder.yml")))
    path = next((path for path in paths if path.exists()), None)
    search = parse_yaml(read_bytes(path), str(path)) if path else {}
    vocabs = search.get("vocabs", ["vocab.yml"])
    if not isinstance(vocabs, list) or not vocabs or not all(isinstance(name, str) for name in vocabs):
        raise InputError(f"{path}: vocabs must be names of files, got {vocabs!r}")
    exponent = float(number_setting(str(path), search, "normalize", 0.0))
    beam_size = whole_setting(str(path), search, "beam-size", 12)
    with named(path):
        return search, DecodeConfig(beam_size=beam_size, ends_within_beam=True, **normalization(exponent))


def _norm_position(path: str, settings: Mapping[str, Any]) -> NormPosition:
    """Returns the position of the layer normalisations; rejects networks that this project cannot express."""
    check_settings(path, settings, _EXPECTED)
    check_kinds(path, settings, dict.fromkeys(_NUMBERS, int) | {"transformer-ffn-activation": str})
    if settings["transformer-ffn-activation"] not in _ACTIVATIONS:
        activation = settings["transformer-ffn-activation"]
        raise InputError(f"{path}: transformer-ffn-activation={activation!r} is not supported")
    order = tuple(
        str(settings.get(f"transformer-{name}", "")) for name in ("preprocess", "postprocess", "postprocess-top")
    )
    if order not in _ORDERS:
        raise InputError(
            f"{path}: transformer-preprocess, -postprocess and -postprocess-top are {', '.join(map(repr, order))}; "
            f"supported are {' and '.join(map(str, _ORDERS))}"
        )
    return _ORDERS[order]


def _tables(path: Path, tensors: Arrays, *, has_bias: bool) -> Tables:
    """Returns the embedding and output matrices, with rows in the model's own id order."""
    shared_table = tensors.get("Wemb")
    source, target = (tensors.get(f"{stack}_Wemb", shared_table) for stack in ("encoder", "decoder"))
    if source is None or target is None:
        raise InputError(f"{path}: there is no tensor Wemb")
    for table in (source, target):
        if table.ndim != 2:
            raise InputError(f"{path}: the tensor Wemb must be a matrix, got {list(table.shape)}")
    output = tensors[f"{_HEAD}_W"].T if f"{_HEAD}_W" in tensors else tensors.get(f"{_HEAD}_Wt", target)
    if output.shape != target.shape:
        raise InputError(f"{path}: the tensor {_HEAD}_W does not fit decoder_Wemb")
    if has_bias and f"{_HEAD}_b" not in tensors:
        raise InputError(f"{path}: there is no tensor {_HEAD}_b")
    if _POSITIONS in tensors:  # Marian scales embeddings only if positions are sinusoids
        source, target = (table / np.float32(table.shape[1] ** 0.5) for table in (source, target))
    bias = tensors.get(f"{_HEAD}_b")
    source, target, output = (np.asarray(table, np.float32) for table in (source, target, output))
    return Tables(source, target, output, None if bias is None else np.asarray(bias, np.float32))


def _scale(weights: dict[str, np.ndarray], factor: float) -> dict[str, np.ndarray]:
    """Scales the inner values of feed-forward networks by `factor`, and their outer kernels by its inverse."""
    factors = {"inner_kernel": factor, "inner_bias": factor, "outer_kernel": 1 / factor}
    return {
        name: array * np.float32(factors.get(name.rpartition("/")[2], 1.0)) if "feed_forward/" in name else array
        for name, array in weights.items()
    }


def _sides(folder: Path, search: Mapping[str, Any]) -> tuple[NamedIds, NamedIds]:
    """Reads the vocabularies of targets and of sources."""
    names = [Path(name).name for name in search.get("vocabs", [])]
    if not names:
        names = sorted(path.name for path in folder.iterdir() if path.name.endswith(("vocab.yml", "vocab.spm")))
        if len(names) > 1:
            raise InputError(f"{folder} has {', '.join(names)}, but no decoder.yml assigns these vocabularies")
    if not names:
        raise InputError(f"{folder} has no vocabulary: neither decoder.yml names one nor is there a vocab.yml")
    source_path, target_path = folder / names[0], folder / names[-1]
    return _side(target_path, folder / "target.spm"), _side(source_path, folder / "source.spm")


def _side(path: Path, model: Path) -> NamedIds:
    if path.suffix == ".spm":
        serialized = read_bytes(path)
        try:
            names = [entry.piece for entry in parsed(serialized).pieces]
        except ValueError as error:
            raise InputError(f"{path} is not a SentencePiece model: {error}") from error
    else:
        names, serialized = read_vocabulary(path), read_bytes(model)
    special = {symbol: names.index(symbol) for symbol in ("</s>", "<unk>") if symbol in names}
    if len(special) < 2:
        raise InputError(f"{path} has no </s> or no <unk>")
    return NamedIds(names, None, special["</s>"], special["<unk>"], serialized)


def read_vocabulary(path: Path) -> list[str]:
    """Reads a vocabulary of lines "piece: id", as Marian writes them, and returns the piece of each id.

    The file is not read as YAML, because YAML readers lose some of its entries.

    Raises:
        InputError: a line has a different form, or ids are repeated or missing; names the file and the line.
    """
    ids: dict[int, str] = {}
    key = None
    for number, line in enumerate(read_bytes(path).decode("utf-8", "replace").split("\n"), start=1):
        line = line.rstrip("\r")
        if not line:
            continue
        if line.startswith("? "):  # the id is on the next line
            key = line[2:]
            continue
        if key is None:
            key, _, value = line.rpartition(":")
        else:
            value = line.removeprefix(":")
        if not value.strip().isdecimal():
            raise InputError(f"{path}, line {number}: expected 'piece: id', got {line!r}")
        try:
            entry_id, piece = int(value), _unquote(key)
        except (OverflowError, ValueError):
            raise InputError(f"{path}, line {number}: {key} names a character that does not exist") from None
        if entry_id in ids:
            raise InputError(f"{path}, line {number}: the id {entry_id} occurs twice")
        ids[entry_id] = piece
        key = None
    if sorted(ids) != list(range(len(ids))):
        raise InputError(f"{path}: the ids must be 0 to {len(ids) - 1}, each once")
    return [ids[number] for number in range(len(ids))]


def _unquote(key: str) -> str:
    quote = key[0] if len(key) > 1 and key[0] == key[-1] else ""
    if quote == "'":
        return key[1:-1].replace("''", "'")
    if quote != '"':
        return key

    def unescaped(match: re.Match[str]) -> str:
        code, other = match.groups()
        return chr(int(code[1:], 16)) if code else _ESCAPES.get(other, other)

    return _ESCAPE.sub(unescaped, key[1:-1])

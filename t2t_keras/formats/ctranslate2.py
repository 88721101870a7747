"""Writes models for CTranslate2, with its Python package.

    pieces = sentencepiece.SentencePieceProcessor("FOLDER/source.model").encode(text, out_type=str)
    ctranslate2.Translator("FOLDER").translate_batch([pieces])

Reference: https://opennmt.net/CTranslate2
"""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from t2t_keras.config import TransformerConfig
from t2t_keras.errors import InputError, optional_module
from t2t_keras.formats.tensor_names import Arrays, LayerNames, tensors_of
from t2t_keras.symbols import SPECIAL

if TYPE_CHECKING:
    from t2t_keras.formats.portable_model import PortableModel

# CTranslate2 joins the projections that read the same sequence: queries, keys and values of self-attention, and keys
# and values of the memory.
LAYERS = LayerNames(
    parts={
        "self_attention/query+key+value": "self_attention/linear_0/{}",
        "self_attention/output": "self_attention/linear_1/{}",
        "self_attention_residual/norm": "self_attention/layer_norm/{}",
        "cross_attention/query": "attention/linear_0/{}",
        "cross_attention/key+value": "attention/linear_1/{}",
        "cross_attention/output": "attention/linear_2/{}",
        "cross_attention_residual/norm": "attention/layer_norm/{}",
        "feed_forward/inner": "ffn/linear_0/{}",
        "feed_forward/outer": "ffn/linear_1/{}",
        "feed_forward_residual/norm": "ffn/layer_norm/{}",
    },
    layer="{stack}/layer_{number}/{part}",
    final_norm="{stack}/layer_norm/{}",
    kinds={"kernel": "weight", "bias": "bias", "scale": "gamma", "offset": "beta"},
    transposed=True,
)
MISSING = "the package ctranslate2 is missing: pip install '.[fast]'"
MAX_POSITIONS = 2048  # rows of a written model's position tables, unless learned tables have more
_NEVER = -6e4  # a logit so low that the token is never chosen, within the range of float16


def variables(weights: Arrays, config: TransformerConfig) -> dict[str, np.ndarray]:
    """Converts weights, as returned by `with_positions`, to CTranslate2's names and layout."""
    table = weights["target_embedding/table"]
    head = "output_embedding" if "output_embedding/table" in weights else "target_embedding"
    tensors = {
        **tensors_of(weights, list(LAYERS.entries(config))),
        "encoder/embeddings_0/weight": weights.get("source_embedding/table", table),
        "decoder/embeddings/weight": table,
        "decoder/projection/weight": weights[f"{head}/table"],
        "encoder/position_encodings/encodings": weights["source_positions/table"],
        "decoder/position_encodings/encodings": weights["target_positions/table"],
    }
    # CTranslate2's search could write padding, which this project's searches never write.
    bias = np.array(weights.get(f"{head}/bias", np.zeros(len(table))), np.float32)
    bias[0] = _NEVER
    return {**tensors, "decoder/projection/bias": bias}


def write_spec(
    weights: Arrays,
    config: TransformerConfig,
    entries: tuple[Sequence[str], Sequence[str]],
    folder: Path,
    quantization: str = "float32",
) -> None:
    """Writes the files that CTranslate2 loads.

    Args:
        weights: the weights, as returned by `with_positions`.
        config: the settings of the model.
        entries: the vocabularies of sources and of targets, which begin with `SPECIAL`.
        folder: an existing folder.
        quantization: "float32" (no quantization), "float16", "bfloat16" or "int8".

    Raises:
        InputError: CTranslate2 is missing, or torch, which it needs for bfloat16.
    """
    if quantization == "bfloat16" and importlib.util.find_spec("torch") is None:
        raise InputError("--quantization=bfloat16: CTranslate2 needs torch for it: pip install '.[bfloat16]'")
    specs = optional_module("ctranslate2.specs", MISSING)
    activations = specs.common_spec.Activation
    spec = specs.transformer_spec.TransformerSpec.from_config(
        (config.num_encoder_layers, config.num_decoder_layers),
        config.num_heads,
        pre_norm=config.norm_position == "pre",
        activation={"relu": activations.RELU, "swish": activations.SWISH, "gelu": activations.GELU}[config.activation],
    )
    for name, array in variables(weights, config).items():
        scope, _, attribute = name.rpartition("/")
        # A copy, because CTranslate2's quantization to 8 bits changes arrays in place.
        setattr(specs.model_spec.index_spec(spec, scope), attribute, np.array(array, np.float32))
    spec.decoder.start_from_zero_embedding = True  # the start symbol is padding, which embeds to zero
    spec.config.decoder_start_token, spec.config.eos_token, spec.config.unk_token = SPECIAL
    spec.config.layer_norm_epsilon = config.layer_norm_epsilon
    spec.config.add_source_eos = True
    for register, names in zip(
        (spec.register_source_vocabulary, spec.register_target_vocabulary), entries, strict=True
    ):
        register(list(names))
    spec.validate()
    spec.optimize(None if quantization == "float32" else quantization)  # also merges equal arrays
    spec.save(str(folder))


def write(model: "PortableModel", folder: Path, quantization: str = "float32") -> tuple[str, ...]:
    """Writes a model for CTranslate2, and its vocabularies; see `known_formats.Writer`."""
    from t2t_keras.formats.graphs.standalone_folder import write_vocabularies
    from t2t_keras.formats.portable_model import check_expressible, text_notes

    config, tokenizer = model.sizes, model.tokenizer
    check_expressible(config, "CTranslate2")
    weights = with_positions(model.weights, config, MAX_POSITIONS)
    write_spec(weights, config, (tokenizer.source.entries, tokenizer.entries), folder, quantization)
    return (*write_vocabularies(model, folder), *text_notes(model, "CTranslate2"))


def with_positions(weights: Arrays, config: TransformerConfig, count: int) -> dict[str, np.ndarray]:
    """Adds tables of positions, "source_positions/table" and "target_positions/table", to a model's weights.

    Both tables, learned or computed, have at least `count` rows, for the longest source or output. Learned tables that
    are shorter are extended with copies of their last row.
    """
    from t2t_keras.layers.position import sinusoids

    layout = "interleaved" if config.position_encoding == "sinusoidal" else "halves"
    sinusoid_table = np.asarray(sinusoids(np.arange(count), config.d_model, layout))
    tables = {}
    for name in ("source_positions/table", "target_positions/table"):
        # This project's models use the last row of a learned table for all later positions.
        table = weights.get(name, sinusoid_table)
        tables[name] = np.pad(table, ((0, max(0, count - len(table))), (0, 0)), mode="edge")
    return {**weights, **tables}

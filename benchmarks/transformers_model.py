"""Converts a model of this project to Hugging Face's Marian or, with pre-norm, M2M100, on PyTorch.

Marian is the paper's network. M2M100 is the same network with norms inside the residual connections and an additional
norm at the end of each stack. Both get this project's weights, positions and epsilon.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import transformers

Arrays = Mapping[str, np.ndarray]

_ATTENTIONS = {"encoder": {"self": "self_attn"}, "decoder": {"self": "self_attn", "cross": "encoder_attn"}}
_PROJECTIONS = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}


class Positions(torch.nn.Module):
    """A table of positions that counts from 0, regardless of the first token."""

    def __init__(self, table: np.ndarray) -> None:
        super().__init__()
        self.table = torch.nn.Buffer(torch.from_numpy(np.array(table)))

    def forward(self, shape_or_ids: Any, *rest: Any, **named: Any) -> torch.Tensor:
        """Returns positions; Marian passes (shape, past), and M2M100 (ids, embeddings, past)."""
        _, length = shape_or_ids if isinstance(shape_or_ids, tuple) else shape_or_ids.shape[:2]
        past = named.get("past_key_values_length", rest[-1] if rest and isinstance(rest[-1], int) else 0)
        return self.table[past : past + length]


def from_weights(weights: Arrays, model: Mapping[str, Any]) -> transformers.PreTrainedModel:
    """Returns the model, ready to generate.

    Args:
        weights: weights as in `benchmarks.ctranslate2_model`.
        model: fields of `t2t_keras.config.TransformerConfig`.

    Raises:
        ValueError: neither model has this network.
    """
    d_head = model["d_model"] // model["num_heads"]
    if not model["use_attention_bias"] or {model["d_key"] or d_head, model["d_value"] or d_head} != {d_head}:
        raise ValueError("the attention must have biases, and heads of d_model / num_heads")
    pre_norm = model["norm_position"] == "pre"
    config_class = transformers.M2M100Config if pre_norm else transformers.MarianConfig
    model_class = transformers.M2M100ForConditionalGeneration if pre_norm else transformers.MarianMTModel
    network = model_class(config_class(**_settings(model))).eval()
    with torch.no_grad():
        _fill(network, weights, model)
    return network


def _settings(model: Mapping[str, Any]) -> dict[str, Any]:
    sides = {}
    for stack in ("encoder", "decoder"):
        sides[f"{stack}_layers"] = model[f"num_{stack}_layers"]
        sides[f"{stack}_ffn_dim"] = model["d_ff"]
        sides[f"{stack}_attention_heads"] = model["num_heads"]
        sides[f"{stack}_layerdrop"] = 0.0
    return {
        **sides,
        "vocab_size": model["vocab_size"],
        "d_model": model["d_model"],
        "activation_function": "relu",
        "scale_embedding": True,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "bos_token_id": None,
        "decoder_start_token_id": 0,
        "forced_eos_token_id": None,
    }


def _fill(network: torch.nn.Module, weights: Arrays, model: Mapping[str, Any]) -> None:
    for module in network.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = model["layer_norm_epsilon"]
    target = weights["target_embedding/table"]
    # The embedding of padding is zero, but the projection has a row for it, so the two matrices are separate here.
    network.lm_head.weight = torch.nn.Parameter(torch.from_numpy(weights.get("output_embedding/table", target).copy()))
    for stack, side in (("encoder", "source"), ("decoder", "target")):
        part = getattr(network.model, stack)
        part.embed_positions = Positions(weights[f"{side}_positions/table"])
        table = torch.from_numpy(weights.get(f"{side}_embedding/table", target).copy())
        table[0] = 0.0
        part.embed_tokens.weight = torch.nn.Parameter(table)
        for index, layer in enumerate(part.layers):
            _fill_layer(layer, weights, f"{stack}/layer_{index}", _ATTENTIONS[stack])
        if model["norm_position"] == "pre":
            _fill_norm(part.layer_norm, weights, f"{stack}/final_norm")


def _fill_layer(layer: torch.nn.Module, weights: Arrays, name: str, attentions: Mapping[str, str]) -> None:
    for kind, attention in attentions.items():
        for ours, theirs in _PROJECTIONS.items():
            _fill_linear(getattr(getattr(layer, attention), theirs), weights, f"{name}/{kind}_attention/{ours}")
        norm = getattr(layer, f"{attention}_layer_norm")
        _fill_norm(norm, weights, f"{name}/{kind}_attention_residual/norm")
    _fill_linear(layer.fc1, weights, f"{name}/feed_forward/inner")
    _fill_linear(layer.fc2, weights, f"{name}/feed_forward/outer")
    _fill_norm(layer.final_layer_norm, weights, f"{name}/feed_forward_residual/norm")


def _fill_linear(linear: torch.nn.Linear, weights: Arrays, name: str) -> None:
    linear.weight.copy_(torch.from_numpy(weights[f"{name}_kernel"].T.copy()))
    linear.bias.copy_(torch.from_numpy(weights[f"{name}_bias"]))


def _fill_norm(norm: torch.nn.LayerNorm, weights: Arrays, name: str) -> None:
    norm.weight.copy_(torch.from_numpy(weights[f"{name}/scale"]))
    norm.bias.copy_(torch.from_numpy(weights[f"{name}/offset"]))

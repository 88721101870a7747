"""The Transformer in NumPy on tensors with another project's names: the reference for imported models."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np


@dataclasses.dataclass
class Network:
    """A network of another project.

    Attributes:
        linear: (stack, number of the layer, part) --> a matrix [in, out] and a bias or 0. Parts are "self_q", "self_k",
            "self_v", "self_o", the same with "cross_", "inner" and "outer".
        norm: (stack, number of the layer or None, "self", "cross", "feed_forward" or "final") --> scale and offset.
        source, target: float [entries, d_model], the scaled embeddings.
        output: float [entries, d_model].
        bias: float [entries].
        positions: the numbers of positions --> float [length, d_model].
        start: the first input of the decoder in place of an embedding, float [d_model].
    """

    linear: Callable
    norm: Callable
    source: np.ndarray
    target: np.ndarray
    output: np.ndarray
    bias: np.ndarray
    positions: Callable
    start: np.ndarray
    layers: int
    heads: int
    epsilon: float
    activation: Callable
    is_pre_norm: bool = False

    def logits(self, source: list[int], target: list[int]) -> np.ndarray:
        """Returns the logits at each position of a target, which is shifted right: float [target_len, entries]."""
        memory = self._stack("encoder", self.source[source] + self.positions(np.arange(len(source))))
        inputs = np.concatenate([self.start[None], self.target[target[:-1]]])
        hidden = self._stack("decoder", inputs + self.positions(np.arange(len(target))), memory)
        return hidden @ self.output.T + self.bias

    def _stack(self, stack: str, x: np.ndarray, memory: np.ndarray | None = None) -> np.ndarray:
        causal = stack == "decoder"
        for number in range(self.layers):
            x = self._residual(
                stack, number, "self", x, lambda x, n=number: self._attend(stack, n, "self", x, x, causal)
            )
            if memory is not None:
                x = self._residual(
                    stack, number, "cross", x, lambda x, n=number: self._attend(stack, n, "cross", x, memory, False)
                )
            x = self._residual(stack, number, "feed_forward", x, lambda x, n=number: self._feed_forward(stack, n, x))
        return self._normalised(x, *self.norm(stack, None, "final")) if self.is_pre_norm else x

    def _residual(self, stack: str, number: int, name: str, x: np.ndarray, sublayer: Callable) -> np.ndarray:
        norm = self.norm(stack, number, name)
        if self.is_pre_norm:
            return x + sublayer(self._normalised(x, *norm))
        return self._normalised(x + sublayer(x), *norm)

    def _normalised(self, x: np.ndarray, scale: np.ndarray, offset: np.ndarray) -> np.ndarray:
        deviation = np.sqrt(x.var(-1, keepdims=True) + self.epsilon)
        return (x - x.mean(-1, keepdims=True)) / deviation * scale + offset

    def _attend(
        self, stack: str, number: int, kind: str, x: np.ndarray, memory: np.ndarray, causal: bool
    ) -> np.ndarray:
        def projected(inputs: np.ndarray, part: str) -> np.ndarray:
            kernel, bias = self.linear(stack, number, f"{kind}_{part}")
            return inputs @ kernel + bias

        queries, keys, values = projected(x, "q"), projected(memory, "k"), projected(memory, "v")
        results = []
        for q, k, v in zip(*(np.split(y, self.heads, axis=1) for y in (queries, keys, values)), strict=True):
            scores = q @ k.T / math.sqrt(q.shape[1])
            if causal:
                scores = np.where(np.tri(len(x), dtype=bool), scores, -np.inf)
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            results.append(weights / weights.sum(-1, keepdims=True) @ v)
        return projected(np.concatenate(results, axis=1), "o")

    def _feed_forward(self, stack: str, number: int, x: np.ndarray) -> np.ndarray:
        (inner, inner_bias), (outer, outer_bias) = (self.linear(stack, number, part) for part in ("inner", "outer"))
        return self.activation(x @ inner + inner_bias) @ outer + outer_bias


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


def swish(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def sines_then_cosines(positions: np.ndarray, d_model: int, steps: float) -> np.ndarray:
    """Returns sinusoids of the frequencies 10000^-(i / steps), float [length, d_model]."""
    angles = positions[:, None] / 10000 ** (np.arange(d_model // 2) / steps)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


def parts_by_torch_names(tensors: dict[str, np.ndarray], prefix: str = "") -> dict[str, Any]:
    """Returns `linear` and `norm` for tensors with the names of fairseq and transformers."""
    parts = {"inner": "fc1", "outer": "fc2"}
    for kind, name in (("self", "self_attn"), ("cross", "encoder_attn")):
        parts |= {f"{kind}_{part}": f"{name}.{part}_proj" for part in "qkv"} | {f"{kind}_o": f"{name}.out_proj"}
    norms = {"self": "self_attn", "cross": "encoder_attn", "feed_forward": "final"}

    def linear(stack: str, number: int, part: str) -> tuple[np.ndarray, np.ndarray]:
        name = f"{prefix}{stack}.layers.{number}.{parts[part]}"
        return tensors[f"{name}.weight"].T, tensors[f"{name}.bias"]

    def norm(stack: str, number: int | None, kind: str) -> tuple[np.ndarray, np.ndarray]:
        layer = "layer_norm" if number is None else f"layers.{number}.{norms[kind]}_layer_norm"
        return tensors[f"{prefix}{stack}.{layer}.weight"], tensors[f"{prefix}{stack}.{layer}.bias"]

    return {"linear": linear, "norm": norm}

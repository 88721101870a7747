"""The formulas of section 3 of the paper in float64 NumPy, one head and one position at a time."""

import math
from collections.abc import Callable

import numpy as np


def numbers(weight) -> np.ndarray:
    """Returns a Keras variable's value in float64."""
    return np.asarray(weight.value if hasattr(weight, "value") else weight, dtype=np.float64)


def randomise(layer, rng, scale: float = 0.3) -> None:
    """Assigns random values to every weight of a built layer, including biases and normalisations."""
    for weight in layer.trainable_variables:
        mean = 1.0 if weight.path.endswith("scale") else 0.0
        weight.assign(mean + scale * rng.standard_normal(tuple(weight.shape)).astype("float32"))


def scaled_dot(query: np.ndarray, key: np.ndarray) -> float:
    """Returns the score of equation 1."""
    return query @ key / math.sqrt(len(key))


def head_score(layer, head: int) -> Callable[[np.ndarray, np.ndarray], float]:
    """Returns the score function of a head of a `MultiHeadAttention` (section 3.2.1)."""
    return {
        "scaled_dot": scaled_dot,
        "dot": lambda query, key: query @ key,
        "additive": lambda query, key: numbers(layer.score_vector)[head] @ np.tanh(query + key),
    }[layer.score]


def attention(
    queries: np.ndarray, keys: np.ndarray, values: np.ndarray, mask: np.ndarray, score=scaled_dot
) -> np.ndarray:
    """Computes equation 1 for one head.

    Shapes: [query_len, d_key], [key_len, d_key], [key_len, d_value], bool [query_len, key_len] --> [query_len,
    d_value].
    """
    outputs = []
    for query, allowed in zip(queries, mask, strict=True):
        scores = [score(query, key) if is_allowed else -math.inf for key, is_allowed in zip(keys, allowed, strict=True)]
        exponentials = [math.exp(score - max(scores)) for score in scores]
        weights = [exponential / sum(exponentials) for exponential in exponentials]
        outputs.append(sum(weight * value for weight, value in zip(weights, values, strict=True)))
    return np.stack(outputs)


def multi_head_attention(layer, query: np.ndarray, memory: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Computes section 3.2.2 with the weights of a `MultiHeadAttention`; mask is bool [batch, query_len, key_len]."""
    outputs = []
    for sentence_query, sentence_memory, sentence_mask in zip(query, memory, mask, strict=True):
        queries, keys, values = (
            np.split(_projected(layer, x, name), layer.num_heads, axis=-1)
            for x, name in ((sentence_query, "query"), (sentence_memory, "key"), (sentence_memory, "value"))
        )
        heads = [
            attention(q, k, v, sentence_mask, head_score(layer, head))
            for head, (q, k, v) in enumerate(zip(queries, keys, values, strict=True))
        ]
        outputs.append(_projected(layer, np.concatenate(heads, axis=-1), "output"))
    return np.stack(outputs)


def attention_weights(layer, query: np.ndarray, memory: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Returns the weights of `multi_head_attention`, [batch, heads, query_len, key_len]: its outputs for unit vectors
    as values.
    """
    values, batch = np.eye(memory.shape[1]), []
    for sentence_query, sentence_memory, sentence_mask in zip(query, memory, mask, strict=True):
        queries = np.split(_projected(layer, sentence_query, "query"), layer.num_heads, axis=-1)
        keys = np.split(_projected(layer, sentence_memory, "key"), layer.num_heads, axis=-1)
        batch.append(
            [
                attention(q, k, values, sentence_mask, head_score(layer, head))
                for head, (q, k) in enumerate(zip(queries, keys, strict=True))
            ]
        )
    return np.array(batch)


def _projected(layer, x: np.ndarray, name: str) -> np.ndarray:
    kernel, bias = getattr(layer, f"{name}_kernel"), getattr(layer, f"{name}_bias")
    return x @ numbers(kernel) + (0.0 if bias is None else numbers(bias))


def layer_norm(layer, x: np.ndarray) -> np.ndarray:
    deviation = np.sqrt(x.var(-1, keepdims=True) + layer.epsilon)
    return (x - x.mean(-1, keepdims=True)) / deviation * numbers(layer.scale) + numbers(layer.offset)


def feed_forward(layer, x: np.ndarray) -> np.ndarray:
    """Computes equation 2, or the same with a different activation."""
    inner = x @ numbers(layer.inner_kernel) + numbers(layer.inner_bias)
    if layer.activation == "relu":
        inner = np.maximum(0.0, inner)
    elif layer.activation == "swish":
        inner = inner / (1.0 + np.exp(-inner))
    else:
        inner *= 0.5 * (1.0 + np.vectorize(math.erf)(inner / math.sqrt(2.0)))
    return inner @ numbers(layer.outer_kernel) + numbers(layer.outer_bias)


def gates(layer, x: np.ndarray, noise: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Returns the gates of a `MixtureOfExperts` for each row, and the load, [rows, num_experts] (appendix A)."""
    clean = x @ numbers(layer.gate_kernel)
    deviations = np.log1p(np.exp(x @ numbers(layer.noise_kernel)))
    noisy = clean if noise is None else clean + noise * deviations
    k, gate_values, load = layer.experts_per_token, np.zeros_like(clean), np.zeros_like(clean)
    for row, values in enumerate(noisy):
        best = np.argsort(-values)[:k]
        gate_values[row, best] = np.exp(values[best]) / np.exp(values[best]).sum()
        for expert in range(len(values)):
            other_values = np.sort(np.delete(values, expert))[::-1]
            if noise is None or k == len(values):
                load[row, expert] = expert in best
            else:
                distance = (clean[row, expert] - other_values[k - 1]) / deviations[row, expert]
                load[row, expert] = 0.5 * (1 + math.erf(distance / math.sqrt(2)))
    return gate_values, load


def mixture(layer, x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Returns the sum of all experts' outputs times the gates: [rows, d_model], [rows, num_experts] --> [rows,
    d_model].
    """
    total = np.zeros_like(x)
    for expert in range(layer.num_experts):
        inner = np.maximum(0, x @ numbers(layer.inner_kernels)[expert] + numbers(layer.inner_biases)[expert])
        outputs = inner @ numbers(layer.outer_kernels)[expert] + numbers(layer.outer_biases)[expert]
        total += weights[:, expert : expert + 1] * outputs
    return total


def squared_variation(sums: np.ndarray) -> float:
    return sums.var() / sums.mean() ** 2


def add_and_norm(residual, x: np.ndarray, sublayer) -> np.ndarray:
    if residual.norm_position == "post":
        return layer_norm(residual.norm, x + sublayer(x))
    return x + sublayer(layer_norm(residual.norm, x))


def self_attention_sublayer(layer, x: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Computes a layer's first sub-layer; mask is bool [batch, length, length]."""
    return add_and_norm(
        layer.self_attention_residual, x, lambda y: multi_head_attention(layer.self_attention, y, y, mask)
    )


def encoder_layer(layer, x: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Computes the left half of Figure 1; mask is bool [batch, source_len, source_len]."""
    x = self_attention_sublayer(layer, x, mask)
    return add_and_norm(layer.feed_forward_residual, x, lambda y: feed_forward(layer.feed_forward, y))


def decoder_layer(layer, x: np.ndarray, memory: np.ndarray, self_mask: np.ndarray, cross_mask: np.ndarray):
    """Computes the right half of Figure 1; masks are bool [batch, target_len, key_len]."""
    x = self_attention_sublayer(layer, x, self_mask)
    x = add_and_norm(
        layer.cross_attention_residual,
        x,
        lambda y: multi_head_attention(layer.cross_attention, y, memory, cross_mask),
    )
    return add_and_norm(layer.feed_forward_residual, x, lambda y: feed_forward(layer.feed_forward, y))

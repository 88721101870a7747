"""The paper's formulas in float64 NumPy, one head and one position at a time, from section 3 alone."""

import math
from collections.abc import Callable

import numpy as np


def numbers(weight) -> np.ndarray:
    """A Keras variable's value in float64."""
    return np.asarray(weight.value if hasattr(weight, "value") else weight, dtype=np.float64)


def randomise(layer, rng, scale: float = 0.3) -> None:
    """Gives every weight of a built layer, biases and normalisations too, values that matter."""
    for weight in layer.trainable_variables:
        around = 1.0 if weight.path.endswith("scale") else 0.0
        weight.assign(around + scale * rng.standard_normal(tuple(weight.shape)).astype("float32"))


def scaled_dot(query: np.ndarray, key: np.ndarray) -> float:
    """The score of equation 1."""
    return query @ key / math.sqrt(len(key))


def score_of(layer, head: int) -> Callable[[np.ndarray, np.ndarray], float]:
    """The score of a head of a `MultiHeadAttention` (section 3.2.1)."""
    return {
        "scaled_dot": scaled_dot,
        "dot": lambda query, key: query @ key,
        "additive": lambda query, key: numbers(layer.score_vector)[head] @ np.tanh(query + key),
    }[layer.score]


def attention(
    queries: np.ndarray, keys: np.ndarray, values: np.ndarray, mask: np.ndarray, score=scaled_dot
) -> np.ndarray:
    """Equation 1 for one head: [query_len, d_key], [key_len, d_key], [key_len, d_value], bool [query_len, key_len]."""
    outputs = []
    for query, allowed in zip(queries, mask, strict=True):
        scores = [score(query, key) if ok else -math.inf for key, ok in zip(keys, allowed, strict=True)]
        exponentials = [math.exp(score - max(scores)) for score in scores]
        shares = [exponential / sum(exponentials) for exponential in exponentials]
        outputs.append(sum(share * value for share, value in zip(shares, values, strict=True)))
    return np.stack(outputs)


def multi_head_attention(layer, query: np.ndarray, memory: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Section 3.2.2 with a `MultiHeadAttention` layer's weights; mask is bool [batch, query_len, key_len]."""
    outputs = []
    for sentence_query, sentence_memory, sentence_mask in zip(query, memory, mask, strict=True):
        queries, keys, values = (
            np.split(_projected(layer, x, name), layer.num_heads, axis=-1)
            for x, name in ((sentence_query, "query"), (sentence_memory, "key"), (sentence_memory, "value"))
        )
        heads = [
            attention(q, k, v, sentence_mask, score_of(layer, head))
            for head, (q, k, v) in enumerate(zip(queries, keys, values, strict=True))
        ]
        outputs.append(_projected(layer, np.concatenate(heads, axis=-1), "output"))
    return np.stack(outputs)


def attention_weights(layer, query: np.ndarray, memory: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The weights within `multi_head_attention`, [batch, heads, query_len, key_len]: what unit vectors are mixed to."""
    values, batch = np.eye(memory.shape[1]), []
    for sentence_query, sentence_memory, sentence_mask in zip(query, memory, mask, strict=True):
        queries = np.split(_projected(layer, sentence_query, "query"), layer.num_heads, axis=-1)
        keys = np.split(_projected(layer, sentence_memory, "key"), layer.num_heads, axis=-1)
        batch.append(
            [
                attention(q, k, values, sentence_mask, score_of(layer, head))
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
    """Equation 2, or with another function in place of max(0, x)."""
    inner = x @ numbers(layer.inner_kernel) + numbers(layer.inner_bias)
    if layer.activation == "relu":
        inner = np.maximum(0.0, inner)
    elif layer.activation == "swish":
        inner = inner / (1.0 + np.exp(-inner))
    else:
        inner *= 0.5 * (1.0 + np.vectorize(math.erf)(inner / math.sqrt(2.0)))
    return inner @ numbers(layer.outer_kernel) + numbers(layer.outer_bias)


def gates(layer, x: np.ndarray, noise: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Of a `MixtureOfExperts`: the gates of each row, and the load, [rows, num_experts]; appendix A, one by one."""
    clean = x @ numbers(layer.gate_kernel)
    deviations = np.log1p(np.exp(x @ numbers(layer.noise_kernel)))
    noisy = clean if noise is None else clean + noise * deviations
    k, actual, load = layer.experts_per_token, np.zeros_like(clean), np.zeros_like(clean)
    for row, values in enumerate(noisy):
        best = np.argsort(-values)[:k]
        actual[row, best] = np.exp(values[best]) / np.exp(values[best]).sum()
        for expert in range(len(values)):
            others = np.sort(np.delete(values, expert))[::-1]
            if noise is None or k == len(values):
                load[row, expert] = expert in best
            else:
                distance = (clean[row, expert] - others[k - 1]) / deviations[row, expert]
                load[row, expert] = 0.5 * (1 + math.erf(distance / math.sqrt(2)))
    return actual, load


def mixture(layer, x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """All experts of a `MixtureOfExperts`, times their gates: [rows, d_model], [rows, num_experts]."""
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


def self_attended(layer, x: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """A layer's first sub-layer; mask is bool [batch, length, length]."""
    return add_and_norm(
        layer.self_attention_residual, x, lambda y: multi_head_attention(layer.self_attention, y, y, mask)
    )


def encoder_layer(layer, x: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The left half of Figure 1; mask is bool [batch, source_len, source_len]."""
    x = self_attended(layer, x, mask)
    return add_and_norm(layer.feed_forward_residual, x, lambda y: feed_forward(layer.feed_forward, y))


def decoder_layer(layer, x: np.ndarray, memory: np.ndarray, self_mask: np.ndarray, cross_mask: np.ndarray):
    """The right half of Figure 1; masks are bool [batch, target_len, key_len]."""
    x = self_attended(layer, x, self_mask)
    x = add_and_norm(
        layer.cross_attention_residual,
        x,
        lambda y: multi_head_attention(layer.cross_attention, y, memory, cross_mask),
    )
    return add_and_norm(layer.feed_forward_residual, x, lambda y: feed_forward(layer.feed_forward, y))

"""Rearranges a Transformer's weights, so that they compute the same with other ids or in another basis."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from t2t_keras.config import TransformerConfig

# Of which axis of a weight, by the last part of its name, d_model is the length.
_AXES = {
    **dict.fromkeys(("table",), 1),
    **dict.fromkeys(("query_kernel", "key_kernel", "value_kernel", "inner_kernel"), 0),
    **dict.fromkeys(("output_kernel", "outer_kernel"), 1),
    **dict.fromkeys(("output_bias", "outer_bias", "scale", "offset"), 0),
}


def from_halves(d_model: int) -> np.ndarray:
    """The places, int [d_model], in which states have what is at 0, 1, 2, ... of interleaved ones (section 3.5).

    For states whose positions are all sines, then all cosines, of the paper's frequencies.
    """
    return np.arange(d_model).reshape(2, -1).T.reshape(-1)


def with_states_at(weights: Mapping[str, np.ndarray], places: np.ndarray) -> dict[str, np.ndarray]:
    """Weights of a network whose states at 0, 1, 2, ... are those that the given one has at some places.

    Embeddings, what each sub-layer reads and writes, and the normalisations are permuted; the insides of heads and of
    feed-forward networks stay as they are.
    """
    axes = {name: axis for name in weights if (axis := _AXES.get(name.rpartition("/")[2])) is not None}
    return {**weights, **{name: np.take(weights[name], places, axis) for name, axis in axes.items()}}


class Tables(NamedTuple):
    """The matrices of tokens as they are used: embeddings are rows times sqrt(d_model), but for that of id 0.

    Attributes:
        source: float32 [source entries, d_model].
        target: float32 [entries, d_model].
        output: float32 [entries, d_model].
        bias: of the logits, float32 [entries], or None.
    """

    source: np.ndarray
    target: np.ndarray
    output: np.ndarray
    bias: np.ndarray | None = None

    def settings(self, one_id_space: bool) -> dict[str, Any]:
        """The fields of a `TransformerConfig` with which a model has such matrices, each of them once if it can."""
        is_tied = np.array_equal(self.target, self.output)
        shares_source = one_id_space and np.array_equal(self.source, self.target)
        return {
            "vocab_size": len(self.target),
            "source_vocab_size": None if one_id_space else len(self.source),
            "tie_embeddings": is_tied and (shares_source or not one_id_space),
            "use_output_bias": self.bias is not None,
        }

    def weights(self, config: TransformerConfig) -> dict[str, np.ndarray]:
        """Our weights for a model of such settings."""
        weights = {"target_embedding/table": self.target}
        head = "target_embedding" if config.tie_embeddings else "output_embedding"
        if not config.tie_embeddings:
            weights["output_embedding/table"] = self.output
        if not config.tie_embeddings or config.source_vocab_size is not None:
            weights["source_embedding/table"] = self.source
        return weights | ({} if self.bias is None else {f"{head}/bias": self.bias})

    @classmethod
    def of(cls, weights: Mapping[str, np.ndarray]) -> "Tables":
        """The matrices of our weights."""
        target = weights["target_embedding/table"]
        source = weights.get("source_embedding/table", target)
        head = "output_embedding" if "output_embedding/table" in weights else "target_embedding"
        return cls(source, target, weights[f"{head}/table"], weights.get(f"{head}/bias"))

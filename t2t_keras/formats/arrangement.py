"""Reorders a Transformer's weights for a different order of token ids or of state dimensions."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from t2t_keras.config import TransformerConfig

# The axis of length d_model, by the last part of a weight's name.
_AXES = {
    **dict.fromkeys(("table",), 1),
    **dict.fromkeys(("query_kernel", "key_kernel", "value_kernel", "inner_kernel"), 0),
    **dict.fromkeys(("output_kernel", "outer_kernel"), 1),
    **dict.fromkeys(("output_bias", "outer_bias", "scale", "offset"), 0),
}


def from_halves(d_model: int) -> np.ndarray:
    """Returns the order, int [d_model], that turns halved position encodings into interleaved ones (section 3.5).

    Halved encodings are all sines, then all cosines, of the paper's frequencies. With `order` as the result,
    `halved[..., order]` is interleaved.
    """
    return np.arange(d_model).reshape(2, -1).T.reshape(-1)


def with_states_at(weights: Mapping[str, np.ndarray], places: np.ndarray) -> dict[str, np.ndarray]:
    """Reorders the dimensions of a network's states: dimension i of the new states is `places[i]` of the old ones.

    Embeddings, the inputs and outputs of sub-layers, and normalisations are permuted. The dimensions inside heads and
    inside feed-forward networks keep their order.
    """
    axes = {name: axis for name in weights if (axis := _AXES.get(name.rpartition("/")[2])) is not None}
    return {**weights, **{name: np.take(weights[name], places, axis) for name, axis in axes.items()}}


class Tables(NamedTuple):
    """The embedding and output matrices of a model.

    The embedding of a token is its row times sqrt(d_model), except that id 0 embeds to zero.

    Attributes:
        source: source embeddings, float32 [source_vocab, d_model].
        target: target embeddings, float32 [vocab, d_model].
        output: the projection to logits, float32 [vocab, d_model].
        bias: the bias of the logits, float32 [vocab], or None.
    """

    source: np.ndarray
    target: np.ndarray
    output: np.ndarray
    bias: np.ndarray | None = None

    def settings(self, one_id_space: bool) -> dict[str, Any]:
        """Returns the fields of a `TransformerConfig` for these matrices, which are shared as far as they are equal."""
        is_tied = np.array_equal(self.target, self.output)
        shares_source = one_id_space and np.array_equal(self.source, self.target)
        return {
            "vocab_size": len(self.target),
            "source_vocab_size": None if one_id_space else len(self.source),
            "tie_embeddings": is_tied and (shares_source or not one_id_space),
            "use_output_bias": self.bias is not None,
        }

    def weights(self, config: TransformerConfig) -> dict[str, np.ndarray]:
        """Returns the matrices as weights of a model with these settings."""
        weights = {"target_embedding/table": self.target}
        head = "target_embedding" if config.tie_embeddings else "output_embedding"
        if not config.tie_embeddings:
            weights["output_embedding/table"] = self.output
        if not config.tie_embeddings or config.source_vocab_size is not None:
            weights["source_embedding/table"] = self.source
        return weights | ({} if self.bias is None else {f"{head}/bias": self.bias})

    @classmethod
    def of(cls, weights: Mapping[str, np.ndarray]) -> "Tables":
        """Returns the matrices of a model's weights."""
        target = weights["target_embedding/table"]
        source = weights.get("source_embedding/table", target)
        head = "output_embedding" if "output_embedding/table" in weights else "target_embedding"
        return cls(source, target, weights[f"{head}/table"], weights.get(f"{head}/bias"))

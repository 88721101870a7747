"""Receivers of the layers' balance losses and attention weights."""

from keras import ops

from t2t_keras.collector import Collector
from t2t_keras.tensor import Tensor


class AuxiliaryLosses(Collector):
    """Collects the balance losses of `MixtureOfExperts` over some sentences; other layers have none.

    Args:
        token_mask: bool [batch, length], True = token; the losses count no others. None means tokens only.

    Attributes:
        losses: of each layer in turn, float32 [batch].
    """

    def __init__(self, token_mask: Tensor | None = None) -> None:
        self.token_mask = token_mask
        self.losses: list[Tensor] = []

    def total(self) -> Tensor:
        """The sum of the layers' losses, float32 [batch]; the scalar 0 without any."""
        return sum(self.losses) if self.losses else ops.zeros((), "float32")


class AttentionWeights(Collector):
    """Collects the weights of each `MultiHeadAttention` before dropout.

    Within a window they are those to all positions, 0 outside of it, and cost as much.

    Attributes:
        weights: of each layer in turn, float [batch, heads, query_len, key_len].
    """

    def __init__(self) -> None:
        self.weights: list[Tensor] = []

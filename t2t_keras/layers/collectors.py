"""Collectors of the layers' balance losses and attention weights."""

from keras import ops

from t2t_keras.collector import Collector
from t2t_keras.tensor import Tensor


class AuxiliaryLosses(Collector):
    """Collects the balance losses of `MixtureOfExperts` layers; other layers have none.

    Args:
        token_mask: bool [batch, length], True = token; other positions do not count. None means that all are tokens.

    Attributes:
        losses: one per layer in the order of the calls, float32 [batch].
    """

    def __init__(self, token_mask: Tensor | None = None) -> None:
        self.token_mask = token_mask
        self.losses: list[Tensor] = []

    def total(self) -> Tensor:
        """Sum of the layers' losses, float32 [batch]; the scalar 0 if there are none."""
        return sum(self.losses) if self.losses else ops.zeros((), "float32")


class AttentionWeights(Collector):
    """Collects the attention weights of each `MultiHeadAttention` layer, before dropout.

    A layer with a window then computes weights for all positions, 0 outside the window, at the cost of full attention.

    Attributes:
        weights: one per layer in the order of the calls, float [batch, heads, query_len, key_len].
    """

    def __init__(self) -> None:
        self.weights: list[Tensor] = []

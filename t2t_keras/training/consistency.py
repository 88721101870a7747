"""Consistency training (SimCut, R-Drop): a second prediction of each target, on any backend.

This module does not import TensorFlow.
"""

from typing import NamedTuple

from keras import ops

from t2t_keras.config import TrainConfig
from t2t_keras.layers.dropout import fold_in, token_cutoff
from t2t_keras.losses import PairTerms
from t2t_keras.tensor import Tensor


class Consistency(NamedTuple):
    """The method by which the second prediction is computed and enters the loss.

    Attributes:
        terms: the weights of the terms of the loss.
        cutoff_rate: share of the tokens whose embeddings are zero in the second prediction, in [0, 1).
    """

    terms: PairTerms
    cutoff_rate: float

    @classmethod
    def of(cls, config: TrainConfig) -> "Consistency | None":
        """Returns the method that `config.consistency` names; None for "none"."""
        if config.consistency == "none":
            return None
        if config.consistency == "rdrop":
            return cls(PairTerms.rdrop(config.consistency_weight), 0.0)
        return cls(PairTerms.simcut(config.consistency_weight), config.cutoff_rate)

    def doubled(self, source: Tensor, target: Tensor, seed: Tensor) -> tuple[Tensor, Tensor]:
        """Repeats the rows of a batch for the second prediction, with token cutoff.

        Args:
            source: int32 [rows, source_len], padded with 0.
            target: int32 [rows, target_len], padded with 0.
            seed: int32 [2]; the seed of the model's dropout, of which the model uses parts 0 and 1.

        Returns:
            int32 [2 * rows, source_len] and [2 * rows, target_len].
        """
        cut = (token_cutoff(side, self.cutoff_rate, fold_in(seed, 2 + i)) for i, side in enumerate((source, target)))
        pairs = zip((source, target), cut, strict=True)
        source, target = (ops.concatenate(pair) for pair in pairs)
        return source, target

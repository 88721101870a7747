"""A model that computes with given weights instead of its variables."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from t2t_keras.config import DecodeConfig
from t2t_keras.losses import PairTerms
from t2t_keras.models.contract import SequenceModel
from t2t_keras.models.weights import weight_names
from t2t_keras.search.goal import Goal
from t2t_keras.search.hoisting import HoistedWeights
from t2t_keras.search.sampling import sample
from t2t_keras.symbols import PAD_ID
from t2t_keras.tensor import Tensor
from t2t_keras.training.consistency import Consistency
from t2t_keras.training.fused_loss import ChunkedLoss, FusedLoss
from t2t_keras.training.layout import MatrixLayout
from t2t_keras.training.pair_loss import ChunkedPairLoss
from t2t_keras.training.updates import Head

# Added to the logit of padding, so that its probability is exactly 0. Finite, because it is multiplied by 0.
_BARRED = -1e9


class Pairs(NamedTuple):
    """Sources and targets, int32 [rows, length] each, padded with 0."""

    source: Tensor
    target: Tensor


class StatelessModel:
    """Computes losses, gradients and samples of a model as functions of its weights.

    The methods take the weights as float32 matrices, see `MatrixLayout`. A loss is the unscaled sum over all tokens, a
    float32 scalar. Gradients are those of the scaled loss, in the shapes of the matrices.

    Args:
        model: a built model.
        layout: layout of the model's trainable weights in matrices.
        skip_padding: as in `ChunkedLoss`.
        for_cpu: as in `ChunkedLoss`.
        frozen: names of weights that are not trained: their gradients are 0 and are not computed.

    Raises:
        ValueError: the table of the output head is not one of the model's trainable variables.
    """

    def __init__(
        self,
        model: SequenceModel,
        layout: MatrixLayout,
        *,
        skip_padding: bool,
        for_cpu: bool,
        frozen: Collection[str] = (),
    ) -> None:
        self.layout = layout
        self._model, self._skip_padding, self._for_cpu = model, skip_padding, for_cpu
        self._variables = model.trainable_variables
        head = model.output_head
        if not any(variable is head.table for variable in self._variables):
            raise ValueError("model.output_head.table must be one of model.trainable_variables, not computed of them")
        self._table_index = self._index_of(head.table)
        self._bias_index = None if head.bias is None else self._index_of(head.bias)
        self._trained_indices = [index for index, name in enumerate(weight_names(model)) if name not in frozen]

    def loss_sum(self, matrices: Sequence[Tensor], pairs: Pairs) -> Tensor:
        """Computes the sum of the token losses without label smoothing and dropout."""
        weights = self.layout.split(matrices)
        with self._scope(weights):
            states = self._model.states(pairs._asdict(), skip_padding=self._skip_padding)
        return self._fused_loss(states.hidden, self._head(weights), pairs.target, 0.0, 1.0).loss_sum

    def likelihood(
        self,
        matrices: Sequence[Tensor],
        pairs: Pairs,
        scale: Tensor,
        label_smoothing: float,
        seed: Tensor,
        consistency: Consistency | None = None,
    ) -> tuple[Tensor, list[Tensor]]:
        """Computes the sum of the token losses and the auxiliary loss, with dropout, and its gradients.

        Args:
            matrices: the weights.
            pairs: sources and targets.
            scale: float32 scalar, factor on the loss in the gradients.
            label_smoothing: epsilon, in [0, 1).
            seed: int32 [2], seed of the dropout.
            consistency: a second prediction of each target. The auxiliary loss is then the mean over both predictions.
        """
        weights, terms = self.layout.split(matrices), None
        inputs = pairs if consistency is None else Pairs(*consistency.doubled(*pairs, seed))
        with self._scope(weights):
            states = self._model.states(inputs._asdict(), seed=seed, training=True, skip_padding=self._skip_padding)
        auxiliary_loss = tf.cast(states.auxiliary_loss, tf.float32)
        if consistency is not None:
            auxiliary_loss, terms = auxiliary_loss / 2.0, consistency.terms
        loss = self._fused_loss(states.hidden, self._head(weights), pairs.target, label_smoothing, scale, terms)
        results, upstream = [states.hidden, auxiliary_loss], [loss.d_hidden, scale]
        return loss.loss_sum + auxiliary_loss, self._gradients(results, upstream, weights, loss.d_head)

    def policy(self, matrices: Sequence[Tensor], pairs: Pairs, scales: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Computes the sum of -log p(target), where p is the distribution of `samples`, and its gradients.

        Args:
            matrices: the weights.
            pairs: sources, and sampled targets.
            scales: float32 [rows], factors on the loss of each row in the gradients.
        """
        weights = self.layout.split(matrices)
        with self._scope(weights):
            states = self._model.states(pairs._asdict(), skip_padding=self._skip_padding)
        head = self._head(weights)
        padding_bias = tf.one_hot(PAD_ID, head.table.shape[0], _BARRED, 0.0)  # --> [vocab]
        head = head._replace(bias=padding_bias if head.bias is None else head.bias + padding_bias)
        loss = self._fused_loss(states.hidden, head, pairs.target, 0.0, scales[:, tf.newaxis])
        return loss.loss_sum, self._gradients([states.hidden], [loss.d_hidden], weights, loss.d_head)

    def samples(
        self, matrices: Sequence[Tensor], source: Tensor, keys: Tensor, max_lengths: Tensor, num_samples: int
    ) -> Tensor:
        """Samples targets token by token, without dropout.

        Args:
            matrices: the weights.
            source: int32 [rows, source_len], padded with 0.
            keys: int32 [rows, 2], random keys of the sentences.
            max_lengths: int32 [rows], limits of the targets' lengths.
            num_samples: targets per source.

        Returns:
            int32 [samples, rows, length], with zeros after the end symbol; length is that of the longest sample.
        """
        settings = DecodeConfig(beam_size=num_samples, sampling=True)
        with self._scope(self.layout.split(matrices)):
            search = self._model.start_search(source, self._model.encode(source), num_samples)
            step = HoistedWeights().wrap(search.step)
            token_ids = sample(step, search.cache, Goal(settings, max_lengths), keys).token_ids
        return tf.stack(tf.unstack(token_ids, axis=1))  # --> [samples, rows, length]

    def _index_of(self, weight: Any) -> int:
        return [variable is weight for variable in self._variables].index(True)

    def _scope(self, weights: list[Tensor]) -> keras.StatelessScope:
        """Returns a context in which the model's variables have these values."""
        return keras.StatelessScope(zip(self._variables, weights, strict=True))

    def _head(self, weights: list[Tensor]) -> Head:
        return Head(weights[self._table_index], None if self._bias_index is None else weights[self._bias_index])

    def _fused_loss(
        self,
        hidden: Tensor,
        head: Head,
        target: Tensor,
        label_smoothing: float,
        scale: Tensor | float,
        terms: PairTerms | None = None,
    ) -> FusedLoss:
        """Computes the fused loss of one prediction of each target or, with `terms`, of two."""
        arguments = head, label_smoothing, hidden.dtype, self._for_cpu
        loss = ChunkedLoss(*arguments) if terms is None else ChunkedPairLoss(*arguments, terms)
        return loss(hidden, target, scale, self._skip_padding)

    def _gradients(
        self, results: list[Tensor], upstream: list[Tensor], weights: list[Tensor], head_gradients: Head
    ) -> list[Tensor]:
        """Returns the gradients of all weights as matrices; those of frozen weights are 0.

        Gradients of the same tensor are added pairwise. A gradient tape would use `AddN` instead, which adds them in
        the order in which they become available, so that results would not be reproducible.

        Args:
            results: the tensors to differentiate.
            upstream: the gradient of the loss with respect to each result.
            weights: all weights.
            head_gradients: the fused loss's own gradients of the head's weights, which are added.
        """
        gradients: list[Tensor | None] = [None] * len(weights)
        trained_gradients = tf.gradients(
            results,
            [weights[index] for index in self._trained_indices],
            upstream,
            aggregation_method=tf.AggregationMethod.EXPERIMENTAL_TREE,
        )
        for index, gradient in zip(self._trained_indices, trained_gradients, strict=True):
            gradients[index] = gradient
        loss_shares = {self._table_index: head_gradients.table, self._bias_index: head_gradients.bias}
        shares = {index: share for index, share in loss_shares.items() if index in self._trained_indices}
        pairs = enumerate(zip(gradients, weights, strict=True))
        return self.layout.join([_total(gradient, weight, shares.get(index)) for index, (gradient, weight) in pairs])


def _total(gradient: Tensor | None, weight: Tensor, loss_share: Tensor | None) -> Tensor:
    """Adds `loss_share`, the fused loss's own part, to a weight's gradient; returns zeros if there is neither."""
    shares = [share for share in (loss_share, gradient) if share is not None]
    return sum(shares[1:], shares[0]) if shares else tf.zeros_like(weight)

"""A model that computes with given weights in place of its variables."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from t2t_keras.config import DecodeConfig
from t2t_keras.models.contract import SequenceModel
from t2t_keras.models.weights import weight_names
from t2t_keras.search.goal import Goal
from t2t_keras.search.hoisting import HoistedWeights
from t2t_keras.search.sampling import sample
from t2t_keras.symbols import PAD_ID
from t2t_keras.tensor import Tensor
from t2t_keras.training.fused_loss import FusedLoss, fused_loss
from t2t_keras.training.layout import Layout
from t2t_keras.training.updates import Head

# Added to the logit of padding, whose probability is exactly 0 then. Finite, because it is multiplied by 0.
_BARRED = -1e9


class Pairs(NamedTuple):
    """Sources and targets, int32 [rows, length] each, padded with 0."""

    source: Tensor
    target: Tensor


class WeightedModel:
    """Losses with their gradients, and samples, as functions of the model's weights in matrices.

    A loss is the sum over all tokens, a float32 scalar that is not scaled, and the gradients of the scaled losses,
    float32 matrices as in `Layout`.

    Args:
        model: built.
        layout: of the model's trainable weights in matrices.
        skip_padding: as in `fused_loss`.
        for_cpu: as in `fused_loss`.
        frozen: names of weights whose gradients are 0; what only they need is not computed.

    Raises:
        ValueError: the matrix of the output head is none of the model's trainable variables.
    """

    def __init__(
        self, model: SequenceModel, layout: Layout, *, skip_padding: bool, for_cpu: bool, frozen: Collection[str] = ()
    ) -> None:
        self.layout = layout
        self._model, self._skip_padding, self._for_cpu = model, skip_padding, for_cpu
        self._variables = model.trainable_variables
        head = model.output_head
        if not any(variable is head.table for variable in self._variables):
            raise ValueError("model.output_head.table must be one of model.trainable_variables, not computed of them")
        self._table_index = self._index_of(head.table)
        self._bias_index = None if head.bias is None else self._index_of(head.bias)
        self._trained = [index for index, name in enumerate(weight_names(model)) if name not in frozen]

    def loss_sum(self, matrices: Sequence[Tensor], pairs: Pairs) -> Tensor:
        """The sum of the token losses without label smoothing and dropout, float32 scalar."""
        weights = self.layout.split(matrices)
        with self._scope(weights):
            states = self._model.states(pairs._asdict(), skip_padding=self._skip_padding)
        return self._fused_loss(states.hidden, self._head(weights), pairs.target, 0.0, 1.0).loss_sum

    def likelihood(
        self, matrices: Sequence[Tensor], pairs: Pairs, scale: Tensor, label_smoothing: float, seed: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """The sum of token losses and auxiliary loss with dropout; `scale` is a float32 scalar, `seed` int32 [2]."""
        weights = self.layout.split(matrices)
        with self._scope(weights):
            states = self._model.states(pairs._asdict(), seed=seed, training=True, skip_padding=self._skip_padding)
        auxiliary_loss = tf.cast(states.auxiliary_loss, tf.float32)
        loss = self._fused_loss(states.hidden, self._head(weights), pairs.target, label_smoothing, scale)
        results, upstream = [states.hidden, auxiliary_loss], [loss.d_hidden, scale]
        return loss.loss_sum + auxiliary_loss, self._gradients(results, upstream, weights, loss.d_head)

    def policy(self, matrices: Sequence[Tensor], pairs: Pairs, scales: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The sum of -log p(target), where p is the distribution of `samples`; `scales` are float32 [rows]."""
        weights = self.layout.split(matrices)
        with self._scope(weights):
            states = self._model.states(pairs._asdict(), skip_padding=self._skip_padding)
        head = self._head(weights)
        barred = tf.one_hot(PAD_ID, head.table.shape[0], _BARRED, 0.0)  # --> [vocab]
        head = head._replace(bias=barred if head.bias is None else head.bias + barred)
        loss = self._fused_loss(states.hidden, head, pairs.target, 0.0, scales[:, tf.newaxis])
        return loss.loss_sum, self._gradients([states.hidden], [loss.d_hidden], weights, loss.d_head)

    def samples(
        self, matrices: Sequence[Tensor], source: Tensor, keys: Tensor, max_lengths: Tensor, num_samples: int
    ) -> Tensor:
        """Draws targets token by token, without dropout: int32 [samples, rows, length], zeros after the end symbol.

        `keys` are int32 [rows, 2], `max_lengths` int32 [rows]; length is that of the longest one drawn.
        """
        settings = DecodeConfig(beam_size=num_samples, sampling=True)
        with self._scope(self.layout.split(matrices)):
            search = self._model.begin(source, self._model.encode(source), num_samples)
            step = HoistedWeights().around(search.step)
            drawn = sample(step, search.cache, Goal(settings, max_lengths), keys).token_ids
        return tf.stack(tf.unstack(drawn, axis=1))  # --> [samples, rows, length]

    def _index_of(self, weight: Any) -> int:
        return [variable is weight for variable in self._variables].index(True)

    def _scope(self, weights: list[Tensor]) -> keras.StatelessScope:
        """Inside, the model's variables have these values."""
        return keras.StatelessScope(zip(self._variables, weights, strict=True))

    def _head(self, weights: list[Tensor]) -> Head:
        return Head(weights[self._table_index], None if self._bias_index is None else weights[self._bias_index])

    def _fused_loss(
        self, hidden: Tensor, head: Head, target: Tensor, label_smoothing: float, scale: Tensor | float
    ) -> FusedLoss:
        return fused_loss(
            hidden, head, target, label_smoothing, scale=scale, skip_padding=self._skip_padding, for_cpu=self._for_cpu
        )

    def _gradients(
        self, results: list[Tensor], upstream: list[Tensor], weights: list[Tensor], of_head: Head
    ) -> list[Tensor]:
        """All gradients in matrices, with the loss's own share in those of the head; 0 of what is not trained.

        `upstream` has the gradient of each result. Where several gradients meet they are added one by one, because the
        operation that adds them at once, which a tape takes, does so in an order that depends on which is done first.
        """
        gradients: list[Tensor | None] = [None] * len(weights)
        trained = tf.gradients(
            results,
            [weights[index] for index in self._trained],
            upstream,
            aggregation_method=tf.AggregationMethod.EXPERIMENTAL_TREE,
        )
        for index, gradient in zip(self._trained, trained, strict=True):
            gradients[index] = gradient
        of_loss = {self._table_index: of_head.table, self._bias_index: of_head.bias}
        shares = {index: share for index, share in of_loss.items() if index in self._trained}
        pairs = enumerate(zip(gradients, weights, strict=True))
        return self.layout.join([_whole(gradient, weight, shares.get(index)) for index, (gradient, weight) in pairs])


def _whole(gradient: Tensor | None, weight: Tensor, of_loss: Tensor | None) -> Tensor:
    """A weight's gradient with `of_loss`, the loss's own share of it; zeros where there is neither."""
    shares = [share for share in (of_loss, gradient) if share is not None]
    return sum(shares[1:], shares[0]) if shares else tf.zeros_like(weight)

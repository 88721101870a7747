"""Loss and gradients of some rows of a batch, as functions of the weights and the rows."""

import functools
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from t2t_keras.models.contract import SequenceModel, States
from t2t_keras.training.fused_loss import FusedLoss, Head, fused_loss
from t2t_keras.training.layout import Layout
from t2t_keras.training.traced import TracedFunction

Tensor = Any

_IDS = tf.TensorSpec([None, None], tf.int32)


class RowFunctions:
    """The forward and backward pass, and the forward pass alone, of some rows of a batch; each is traced once.

    Every stream, part of an accumulation and replica calls the same traced function with its own weights and rows, so
    the time until training starts does not grow with their number. First access traces: do it outside of all graphs,
    tapes and replicas.

    Args:
        model: built; each call passes the weights to use.
        layout: of the model's trainable weights in matrices.
        label_smoothing: epsilon in training, in [0, 1).
        skip_padding: as in `fused_loss`.
        for_cpu: as in `fused_loss`.
        jit_compile: compile the passes with XLA, once per shape.
        copied: copy the functions into each graph that calls them, so that XLA can compile the whole graph.
    """

    def __init__(
        self,
        model: SequenceModel,
        layout: Layout,
        label_smoothing: float,
        *,
        skip_padding: bool,
        for_cpu: bool,
        jit_compile: bool,
        copied: bool,
    ) -> None:
        self._model, self._layout, self._label_smoothing = model, layout, label_smoothing
        self._skip_padding, self._for_cpu = skip_padding, for_cpu
        self._jit_compile, self._copied = jit_compile, copied
        self._variables = model.trainable_variables
        head = model.output_head
        if not any(variable is head.table for variable in self._variables):
            raise ValueError("model.output_head.table must be one of model.trainable_variables, not computed of them")
        self._table_index = self._index_of(head.table)
        self._bias_index = None if head.bias is None else self._index_of(head.bias)

    def _index_of(self, weight: Any) -> int:
        return [variable is weight for variable in self._variables].index(True)

    @functools.cached_property
    def gradients(self) -> Callable[..., tuple[Tensor, list[Tensor]]]:
        """The forward and backward pass with dropout: (*weights, source, target, scale, seed) --> (loss, gradients).

        Weights and gradients are float32 matrices, see `Layout`; source and target are int32 [rows, length], padded
        with 0; the seed is int32 [2]. The loss is `scale` times the sum of token losses and auxiliary loss, float32
        scalars.
        """
        return self._trace(self._loss_and_gradients, tf.TensorSpec([], tf.float32), tf.TensorSpec([2], tf.int32))

    @functools.cached_property
    def loss(self) -> Callable[..., Tensor]:
        """The forward pass without dropout: (*weights, source, target) --> sum of the unsmoothed token losses."""
        return self._trace(self._plain_loss)

    def _trace(self, function: Callable, *others: tf.TensorSpec) -> Callable:
        """Traces a function of weights, source, target and others, to be called in graphs."""
        weights = [tf.TensorSpec(shape, tf.float32) for shape in self._layout.shapes]
        signature = [*weights, _IDS, _IDS, *others]
        if not (self._jit_compile or self._copied):
            return TracedFunction(function, signature, fewer_rewrites=self._for_cpu)
        return tf.function(
            function, signature, autograph=False, jit_compile=self._jit_compile or None
        ).get_concrete_function()

    def _loss_and_gradients(self, *arguments: Tensor) -> tuple[Tensor, list[Tensor]]:
        *matrices, source, target, scale, seed = arguments
        weights = self._layout.split(matrices)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(weights)
            states = self._states(weights, source, target, seed=seed, training=True)
            auxiliary_loss = tf.cast(states.auxiliary_loss, tf.float32)
        loss = self._fused_loss(states.hidden, weights, target, self._label_smoothing, scale=scale)
        gradients = tape.gradient((states.hidden, auxiliary_loss), weights, output_gradients=(loss.d_hidden, scale))
        of_head = {self._table_index: loss.d_head.table, self._bias_index: loss.d_head.bias}
        dense = [
            _dense(gradient, weight, of_head.get(index))
            for index, (gradient, weight) in enumerate(zip(gradients, weights, strict=True))
        ]
        return (loss.loss_sum + auxiliary_loss) * scale, self._layout.join(dense)

    def _plain_loss(self, *arguments: Tensor) -> Tensor:
        *matrices, source, target = arguments
        weights = self._layout.split(matrices)
        states = self._states(weights, source, target, seed=None, training=False)
        return self._fused_loss(states.hidden, weights, target, 0.0, scale=1.0).loss_sum

    def _states(
        self, weights: list[Tensor], source: Tensor, target: Tensor, *, seed: Tensor | None, training: bool
    ) -> States:
        with keras.StatelessScope(zip(self._variables, weights, strict=True)):
            batch = {"source": source, "target": target}
            return self._model.states(batch, seed=seed, training=training, skip_padding=self._skip_padding)

    def _fused_loss(
        self, hidden: Tensor, weights: list[Tensor], target: Tensor, label_smoothing: float, *, scale: Tensor | float
    ) -> FusedLoss:
        return fused_loss(
            hidden,
            Head(weights[self._table_index], None if self._bias_index is None else weights[self._bias_index]),
            target,
            label_smoothing,
            scale=scale,
            skip_padding=self._skip_padding,
            for_cpu=self._for_cpu,
        )


def _dense(gradient: Tensor | None, weight: Tensor, dense_part: Tensor | None) -> Tensor:
    """A weight's whole gradient, repeated rows added up, as Adam needs; `dense_part` is the loss's own share of it."""
    if dense_part is None:
        return tf.zeros_like(weight) if gradient is None else tf.convert_to_tensor(gradient)
    if isinstance(gradient, tf.IndexedSlices):
        return tf.tensor_scatter_nd_add(dense_part, gradient.indices[:, tf.newaxis], gradient.values)
    return dense_part if gradient is None else dense_part + gradient

"""Loss and gradients of some rows of a batch, as functions of the weights and the rows."""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from t2t_keras.training.objectives.objective import Objective, Rows
from t2t_keras.training.objectives.weighted_model import Pairs, WeightedModel
from t2t_keras.training.traced import TracedFunction

Tensor = Any

_IDS = tf.TensorSpec([None, None], tf.int32)


class RowFunctions:
    """The forward and backward pass, and the forward pass alone, of some rows of a batch; each is traced once.

    Every stream, part of an accumulation and replica calls the same traced function with its own weights and rows, so
    the time until training starts does not grow with their number. First access traces: do it outside of all graphs,
    tapes and replicas.

    Args:
        model: each call passes the weights to use.
        objective: what `gradients` are of.
        fewer_rewrites: as in `TracedFunction`.
        jit_compile: compile the passes with XLA, once per shape.
        copied: copy the functions into each graph that calls them, so that XLA can compile the whole graph.
    """

    def __init__(
        self, model: WeightedModel, objective: Objective, *, fewer_rewrites: bool, jit_compile: bool, copied: bool
    ) -> None:
        self._model, self._objective = model, objective
        self._fewer_rewrites, self._jit_compile, self._copied = fewer_rewrites, jit_compile, copied

    @functools.cached_property
    def gradients(self) -> Callable[..., tuple[Tensor, list[Tensor]]]:
        """The objective with its gradients: (*weights, source, target, scale, seed, step) --> (sums, gradients).

        Weights and gradients are float32 matrices, see `Layout`; source and target are int32 [rows, length], padded
        with 0. For the others and the sums see `Rows` and `Objective`.
        """
        scale, seed, step = tf.TensorSpec([]), tf.TensorSpec([2], tf.int32), tf.TensorSpec([], tf.int64)
        return self._trace(self._sums_and_gradients, scale, seed, step)

    @functools.cached_property
    def loss(self) -> Callable[..., Tensor]:
        """The forward pass without dropout: (*weights, source, target) --> sum of the unsmoothed token losses."""
        return self._trace(self._plain_loss)

    def _trace(self, function: Callable, *others: tf.TensorSpec) -> Callable:
        """Traces a function of weights, source, target and others, to be called in graphs."""
        weights = [tf.TensorSpec(shape, tf.float32) for shape in self._model.layout.shapes]
        signature = [*weights, _IDS, _IDS, *others]
        if not (self._jit_compile or self._copied):
            return TracedFunction(function, signature, fewer_rewrites=self._fewer_rewrites)
        return tf.function(
            function, signature, autograph=False, jit_compile=self._jit_compile or None
        ).get_concrete_function()

    def _sums_and_gradients(self, *arguments: Tensor) -> tuple[Tensor, list[Tensor]]:
        *matrices, source, target, scale, seed, step = arguments
        return self._objective(self._model, matrices, Rows(Pairs(source, target), scale, seed, step))

    def _plain_loss(self, *arguments: Tensor) -> Tensor:
        *matrices, source, target = arguments
        return self._model.loss_sum(matrices, Pairs(source, target))

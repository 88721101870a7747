"""Loss and gradients of some rows of a batch, as one function of the weights and the rows."""

import functools
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from t2t_keras.model import Transformer
from t2t_keras.training.fused_loss import fused_loss

Tensor = Any


def trace(function: Callable, signature: list[Any], *, jit_compile: bool = False, copied: bool = False) -> Callable:
    """A function traced for a signature, which every graph calls and none copies: so it is made ready only once.

    Args:
        function: of tensors.
        signature: of its arguments, in nests of `tf.TensorSpec`.
        jit_compile: compile it with XLA, once a shape.
        copied: copy it into each graph that calls it, for XLA to compile the whole of that graph.

    Returns:
        The traced function. Whoever has it traced should stand outside of all graphs, tapes and replicas.
    """
    attributes = None if jit_compile or copied else {"_noinline": True}
    traced = tf.function(
        function, signature, autograph=False, jit_compile=jit_compile or None, experimental_attributes=attributes
    )
    return traced.get_concrete_function()


class RowGradients:
    """The forward and backward pass of some rows of a batch.

    It is traced once. Every stream, part of an accumulation and replica calls the
    same traced function with its own weights and rows, so the time until training
    starts does not grow with their number by a trace of each.

    Args:
        model: built; its weights are those of the call's `weights`, not its own.
        label_smoothing: epsilon, in [0, 1).
        skip_padding: compute rows of real tokens only; False keeps every shape static, as XLA needs.
        for_cpu: as in `fused_loss`.
        jit_compile: as in `trace`.
        copied: as in `trace`.

    Call arguments:
        weights: a tensor for each of the model's trainable variables, in their order.
        source: int32 [rows, source_len], padded with 0.
        target: int32 [rows, target_len], padded with 0.
        scale: float32 scalar that loss and gradients are multiplied by.
        seed: int32 [2], of all dropout.

    Returns:
        The scaled sum of the rows' token losses, float32 scalar, and its gradient for each of the weights, dense, of
        the weight's shape and dtype.
    """

    def __init__(
        self,
        model: Transformer,
        label_smoothing: float,
        *,
        skip_padding: bool,
        for_cpu: bool,
        jit_compile: bool,
        copied: bool,
    ) -> None:
        self._model, self._label_smoothing, self._skip_padding = model, label_smoothing, skip_padding
        self._for_cpu, self._jit_compile, self._copied = for_cpu, jit_compile, copied
        self._variables = model.trainable_variables
        self._table_index = [v is model.output_embedding.table for v in self._variables].index(True)

    def __call__(
        self, weights: list[Tensor], source: Tensor, target: Tensor, scale: Tensor, seed: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        return self.traced(weights, source, target, scale, seed)

    @functools.cached_property
    def traced(self) -> Callable[..., tuple[Tensor, list[Tensor]]]:
        """The traced function; see `trace`."""
        ids = tf.TensorSpec([None, None], tf.int32)
        weights = [tf.TensorSpec(variable.shape, variable.dtype) for variable in self._variables]
        signature = [weights, ids, ids, tf.TensorSpec([], tf.float32), tf.TensorSpec([2], tf.int32)]
        return trace(self._loss_and_gradients, signature, jit_compile=self._jit_compile, copied=self._copied)

    def _loss_and_gradients(
        self, weights: list[Tensor], source: Tensor, target: Tensor, scale: Tensor, seed: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        table = weights[self._table_index]
        values = zip(self._variables, weights, strict=True)
        with tf.GradientTape(watch_accessed_variables=False) as tape, keras.StatelessScope(values):
            tape.watch(weights)
            batch = {"source": source, "target": target}
            states = self._model.states(batch, seed=seed, training=True, skip_padding=self._skip_padding)
        loss = fused_loss(
            states,
            table,
            target,
            self._label_smoothing,
            scale=scale,
            skip_padding=self._skip_padding,
            for_cpu=self._for_cpu,
        )
        gradients = tape.gradient(states, weights, output_gradients=loss.d_states)
        return loss.loss_sum * scale, [
            _dense(gradient, weight, loss.d_table if weight is table else None)
            for gradient, weight in zip(gradients, weights, strict=True)
        ]


def _dense(gradient: Tensor | None, weight: Tensor, dense_part: Tensor | None) -> Tensor:
    """A weight's whole gradient with repeated rows added up, as they must be before Adam squares them.

    Args:
        gradient: of the network below the loss.
        weight: whose gradient it is.
        dense_part: of the loss itself, if the weight is its matrix.
    """
    if dense_part is None:
        return tf.zeros_like(weight) if gradient is None else tf.convert_to_tensor(gradient)
    if isinstance(gradient, tf.IndexedSlices):
        return tf.tensor_scatter_nd_add(dense_part, gradient.indices[:, tf.newaxis], gradient.values)
    return dense_part if gradient is None else dense_part + gradient

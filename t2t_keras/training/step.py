"""One training step on every replica: forward, backward, all-reduce, update.

Per replica n = its tokens, N = n summed over the replicas, loss = its sum of
token losses / N. Losses and gradients are then summed over replicas, so one
replica and eight follow one trajectory for one global batch.
"""

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from t2t_keras import schedules
from t2t_keras.config import TrainConfig
from t2t_keras.errors import InputError
from t2t_keras.layers.dropout import fold_in
from t2t_keras.model import Transformer
from t2t_keras.run import weight_names
from t2t_keras.training.fused_loss import fused_loss
from t2t_keras.training.optimizer import Adam
from t2t_keras.training.strategy import is_tpu, num_streams

Tensor = Any
SUM = tf.distribute.ReduceOp.SUM

# A batch's shape is one of the plan's, the same on all replicas. A TPU would else take every length that the graph
# does not know for one that changes from replica to replica; so it compiles one program a shape.
_SHAPES_AS_THEY_ARE = tf.distribute.RunOptions(experimental_enable_dynamic_batch_size=False)


class StepMetrics(NamedTuple):
    """What is known of each step of a call; arrays of [steps].

    Attributes:
        loss: label-smoothed loss a target token.
        tokens: target tokens of the global batch.
        learning_rate: of the update.
        gradient_norm: of the gradients summed over replicas, before clipping.
    """

    loss: np.ndarray
    tokens: np.ndarray
    learning_rate: np.ndarray
    gradient_norm: np.ndarray


class TrainingStep:
    """The model, its optimizer and the compiled step, under one strategy.

    Args:
        model: made and built inside the strategy's scope.
        config: of the training.
        strategy: the replicas.

    Raises:
        InputError: the replicas are of a TPU, and shapes are not static.
    """

    def __init__(self, model: Transformer, config: TrainConfig, strategy: tf.distribute.Strategy) -> None:
        if is_tpu(strategy) and not config.static_shapes:
            raise InputError("a TPU needs --set train.static_shapes=true")
        self.model, self.config, self.strategy = model, config, strategy
        self.names = weight_names(model)
        self.variables = [weight.value for weight in model.trainable_variables]
        with strategy.scope():
            self.adam = Adam(self.variables, config.adam_beta1, config.adam_beta2, config.adam_epsilon)
            self.step = tf.Variable(0, dtype=tf.int64, trainable=False, name="step")
            averaged = self.variables if config.ema_decay else []
            self.averages = [tf.Variable(tf.zeros(v.shape), trainable=False, name="average") for v in averaged]
        self.start_averages()
        self._run = tf.function(self._steps)
        self._skip_padding = not (config.jit_compile or is_tpu(strategy))
        gradients = self._loss_and_gradients
        # A TPU compiles the whole step, update and all.
        is_compiled = config.jit_compile and not is_tpu(strategy)
        self._loss_gradients = tf.function(gradients, jit_compile=True) if is_compiled else gradients
        self._streams = num_streams(strategy)
        self._validate = tf.function(self._validation_loss)

    def run(self, batches: Iterator[Any], steps: int) -> StepMetrics:
        """Takes a number of steps without a return to Python.

        Args:
            batches: the strategy's distributed iterator.
            steps: how many.

        Returns:
            The metrics of each.
        """
        return StepMetrics(*(values.numpy() for values in self._run(batches, tf.constant(steps))))

    def validation_loss(self, batches: Iterator[Any], count: int) -> tuple[float, float]:
        """The unsmoothed loss's sum over distributed batches, and their target tokens."""
        loss, tokens = self._validate(batches, tf.constant(count))
        return float(loss), float(tokens)

    @contextlib.contextmanager
    def averaged_weights(self) -> Iterator[None]:
        """The model has its moving averages for weights inside, if there are any."""
        if not self.config.ema_decay:
            yield
            return
        weights = [variable.numpy() for variable in self.variables]
        for variable, average in zip(self.variables, self.averages, strict=True):
            variable.assign(average)
        try:
            yield
        finally:
            for variable, weight in zip(self.variables, weights, strict=True):
                variable.assign(weight)

    def read(self) -> dict[str, dict[str, np.ndarray]]:
        """All state but the step count, by weight name: "weights", "first_moments", "second_moments", maybe "ema"."""
        state = {
            "weights": self.variables,
            "first_moments": self.adam.first_moments,
            "second_moments": self.adam.second_moments,
        }
        if self.config.ema_decay:
            state["ema"] = self.averages
        return {
            part: {name: variable.numpy() for name, variable in zip(self.names, variables, strict=True)}
            for part, variables in state.items()
        }

    def write(self, state: dict[str, dict[str, np.ndarray]], step: int) -> None:
        """The inverse of `read`, with the number of updates made so far."""
        parts = {
            "weights": self.variables,
            "first_moments": self.adam.first_moments,
            "second_moments": self.adam.second_moments,
            "ema": self.averages,
        }
        for part, values in state.items():
            for name, variable in zip(self.names, parts[part], strict=True):
                variable.assign(values[name])
        self.step.assign(step)

    def start_averages(self) -> None:
        """Sets the moving averages to the weights."""
        for average, variable in zip(self.averages, self.variables, strict=False):
            average.assign(variable)

    def _steps(self, batches: Iterator[Any], steps: Tensor) -> tuple[Tensor, ...]:
        arrays = tuple(tf.TensorArray(tf.float32, steps, element_shape=[]) for _ in StepMetrics._fields)
        for i in tf.range(steps):
            replicated = self.strategy.run(self._replica_step, args=(next(batches),), options=_SHAPES_AS_THEY_ARE)
            values = [self.strategy.experimental_local_results(value)[0] for value in replicated]
            arrays = tuple(array.write(i, value) for array, value in zip(arrays, values, strict=True))
        return tuple(array.stack() for array in arrays)  # --> [steps] each

    def _replica_step(self, batch: dict[str, Tensor]) -> tuple[Tensor, ...]:
        """One replica's part of one step; every replica returns the same metrics."""
        replica = tf.distribute.get_replica_context()
        tokens = tf.math.count_nonzero(batch["target"], dtype=tf.float32)
        all_tokens = replica.all_reduce(SUM, tokens)
        loss, gradients = self._accumulated(batch, all_tokens, self._seed(replica.replica_id_in_sync_group))
        loss, gradients = replica.all_reduce(SUM, [loss, gradients])
        norm = tf.linalg.global_norm(gradients)
        if self.config.clip_norm:
            gradients, _ = tf.clip_by_global_norm(gradients, self.config.clip_norm, norm)
        step = self.step + 1
        rate = schedules.learning_rate(
            step, self.model.config.d_model, self.config.warmup_steps, self.config.learning_rate_scale
        )
        self.adam.apply(gradients, rate, step)
        if self.config.ema_decay:
            for average, variable in zip(self.averages, self.variables, strict=True):
                average.assign_add((1.0 - self.config.ema_decay) * (variable - average))
        self.step.assign_add(1)
        return loss, all_tokens, rate, norm

    def _accumulated(self, batch: dict[str, Tensor], all_tokens: Tensor, seed: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Loss and gradients of the replica's rows, in `accumulation_steps` parts one after the other."""
        parts = self.config.accumulation_steps
        if parts == 1:
            return self._side_by_side(batch["source"], batch["target"], all_tokens, fold_in(seed, 0))
        rows = tf.shape(batch["source"])[0] // parts

        def part(index: Tensor) -> tuple[Tensor, list[Tensor]]:
            source, target = (batch[side][index * rows : (index + 1) * rows] for side in ("source", "target"))
            return self._side_by_side(source, target, all_tokens, fold_in(seed, index))

        def add(index: Tensor, loss: Tensor, gradients: list[Tensor]) -> tuple:
            part_loss, part_gradients = part(index)
            return index + 1, loss + part_loss, [a + b for a, b in zip(gradients, part_gradients, strict=True)]

        start = (tf.constant(1), *part(tf.constant(0)))
        _, loss, gradients = tf.while_loop(lambda index, *_: index < parts, add, start, parallel_iterations=1)
        return loss, gradients

    def _side_by_side(
        self, source: Tensor, target: Tensor, all_tokens: Tensor, seed: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """Loss and gradients of some rows; every stream takes its share of them at the same time as the others."""
        count = self._streams
        if count == 1:
            return self._loss_gradients(source, target, all_tokens, seed)
        # Rows come in order of length: every count-th one gives the streams equal work.
        results = [
            self._loss_gradients(source[i::count], target[i::count], all_tokens, fold_in(seed, i)) for i in range(count)
        ]
        losses, gradients = zip(*results, strict=True)
        return tf.add_n(losses), [tf.add_n(parts) for parts in zip(*gradients, strict=True)]

    def _loss_and_gradients(
        self, source: Tensor, target: Tensor, all_tokens: Tensor, seed: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        table = self.model.output_embedding.table.value
        scale = 1.0 / tf.maximum(all_tokens, 1.0)
        with tf.GradientTape() as tape:
            batch = {"source": source, "target": target}
            states = self.model.states(batch, seed=seed, training=True, skip_padding=self._skip_padding)
        loss_sum, d_states, d_table = fused_loss(
            states, table, target, self.config.label_smoothing, scale, self._skip_padding
        )
        gradients = tape.gradient(states, self.variables, output_gradients=d_states)
        return loss_sum * scale, [
            _dense(gradient, variable, d_table if variable is table else None)
            for gradient, variable in zip(gradients, self.variables, strict=True)
        ]

    def _validation_loss(self, batches: Iterator[Any], count: Tensor) -> tuple[Tensor, Tensor]:
        def replica_loss(batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
            states = self.model.states(batch, training=False, skip_padding=self._skip_padding)
            table = self.model.output_embedding.table.value
            loss = fused_loss(states, table, batch["target"], 0.0, self._skip_padding).loss_sum
            return loss, tf.math.count_nonzero(batch["target"], dtype=tf.float32)

        loss, tokens = tf.constant(0.0), tf.constant(0.0)
        for _ in tf.range(count):
            losses, counts = self.strategy.run(replica_loss, args=(next(batches),), options=_SHAPES_AS_THEY_ARE)
            loss += self.strategy.reduce(SUM, losses, axis=None)
            tokens += self.strategy.reduce(SUM, counts, axis=None)
        return loss, tokens

    def _seed(self, replica_id: Tensor) -> Tensor:
        """int32 [2], a function of the run's seed, the step and the replica alone."""
        words = tf.stack([tf.constant(self.config.seed, tf.int64), tf.cast(self.step, tf.int64)])
        mixed = tf.random.stateless_uniform([2], words, minval=None, maxval=None, dtype=tf.int32, alg="philox")
        return fold_in(mixed, tf.cast(replica_id, tf.int32))


def _dense(gradient: Tensor | None, variable: tf.Variable, dense_part: Tensor | None) -> Tensor:
    """A variable's whole gradient with repeated rows added up, as they must be before Adam squares them.

    Args:
        gradient: of the network below the loss.
        variable: whose gradient it is.
        dense_part: of the loss itself, if the variable is its matrix.
    """
    if dense_part is None:
        return tf.zeros_like(variable) if gradient is None else tf.convert_to_tensor(gradient)
    if isinstance(gradient, tf.IndexedSlices):
        return tf.tensor_scatter_nd_add(dense_part, gradient.indices[:, tf.newaxis], gradient.values)
    return dense_part if gradient is None else dense_part + gradient

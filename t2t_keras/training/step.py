"""One training step on every replica: forward, backward, all-reduce, update.

Per replica n = its tokens, N = n summed over the replicas, loss = its sum of
token losses / N. Losses and gradients are then summed over replicas, so one
replica and eight follow one trajectory for one global batch.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
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
from t2t_keras.training.gradients import RowGradients, trace
from t2t_keras.training.optimizer import Adam, AdamHandles
from t2t_keras.training.strategy import is_tpu, num_streams

Tensor = Any
SUM = tf.distribute.ReduceOp.SUM
_HANDLE = tf.TensorSpec([], tf.resource)  # of a variable

_REWRITES_LEFT_OUT = (
    "arithmetic_optimization",
    "constant_folding",
    "dependency_optimization",
    "function_optimization",
    "implementation_selector",
    "layout_optimizer",
    "loop_optimization",
    "remapping",
    "shape_optimization",
)

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
        self._is_tpu = is_tpu(strategy)  # which compiles the whole step, update and all
        self._skip_padding = not (config.jit_compile or self._is_tpu)
        self._for_cpu = "CPU" in self.variables[0].device and not self._is_tpu
        self._streams = num_streams(strategy)
        self._row_gradients = RowGradients(
            model,
            config.label_smoothing,
            skip_padding=self._skip_padding,
            for_cpu=self._for_cpu,
            jit_compile=config.jit_compile and not self._is_tpu,
            copied=self._is_tpu,
        )
        # Adding up one vector takes one operation a replica, and one message between machines, for all weights.
        self._is_packed = strategy.num_replicas_in_sync > 1
        self._run = tf.function(self._steps, autograph=False)
        self._validate = tf.function(self._validation_loss, autograph=False)

    def run(self, batches: Iterator[Any], steps: int) -> StepMetrics:
        """Takes a number of steps without a return to Python.

        Args:
            batches: the strategy's distributed iterator.
            steps: how many.

        Returns:
            The metrics of each.
        """
        with self._rewrites():
            self._prepare()
            return StepMetrics(*(values.numpy() for values in self._run(batches, tf.constant(steps))))

    def validation_loss(self, batches: Iterator[Any], count: int) -> tuple[float, float]:
        """The unsmoothed loss's sum over distributed batches, and their target tokens."""
        with self._rewrites():
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
        def take(index: Tensor, arrays: tuple) -> tuple:
            replicated = self.strategy.run(self._replica_step, args=(next(batches),), options=_SHAPES_AS_THEY_ARE)
            values = [self.strategy.experimental_local_results(value)[0] for value in replicated]
            return index + 1, tuple(array.write(index, value) for array, value in zip(arrays, values, strict=True))

        arrays = tuple(tf.TensorArray(tf.float32, steps, element_shape=[]) for _ in StepMetrics._fields)
        start = (tf.constant(0), arrays)
        _, arrays = tf.while_loop(lambda index, _: index < steps, take, start, parallel_iterations=1)
        return tuple(array.stack() for array in arrays)  # --> [steps] each

    def _replica_step(self, batch: dict[str, Tensor]) -> tuple[Tensor, ...]:
        """One replica's part of one step; every replica returns the same metrics."""
        replica = tf.distribute.get_replica_context()
        tokens = tf.math.count_nonzero(batch["target"], dtype=tf.float32)
        all_tokens = replica.all_reduce(SUM, tokens)
        scale = 1.0 / tf.maximum(all_tokens, 1.0)
        seed = self._seed(replica.replica_id_in_sync_group)
        weights = [variable.handle for variable in self.variables]
        sums = self._traced_gradients(weights, batch["source"], batch["target"], scale, seed)
        sums = replica.all_reduce(SUM, sums)
        step = self.step + 1
        rate = schedules.learning_rate(
            step, self.model.config.d_model, self.config.warmup_steps, self.config.learning_rate_scale
        )
        averages = [average.handle for average in self.averages]
        loss, norm = self._traced_update(self.adam.handles(), averages, sums, rate, step)
        self.step.assign_add(1)
        return loss, all_tokens, rate, norm

    def _rewrites(self) -> contextlib.AbstractContextManager[None]:
        """How graphs are made ready; off the CPU as TensorFlow has it, for there nothing was measured."""
        return _fewer_rewrites() if self._for_cpu else contextlib.nullcontext()

    def _prepare(self) -> None:
        """Traces what all replicas call, which belongs outside of their graph."""
        _ = self._row_gradients.traced, self._traced_gradients, self._traced_update

    @functools.cached_property
    def _traced_gradients(self) -> Callable[..., list[Tensor]]:
        ids, handles = tf.TensorSpec([None, None], tf.int32), [_HANDLE] * len(self.variables)
        signature = [handles, ids, ids, tf.TensorSpec([], tf.float32), tf.TensorSpec([2], tf.int32)]
        return trace(self._gradients, signature, copied=self._is_tpu)

    @functools.cached_property
    def _traced_update(self) -> Callable[..., tuple[Tensor, Tensor]]:
        handles = [_HANDLE] * len(self.variables)
        sums = [tf.TensorSpec([], tf.float32), *(tf.TensorSpec(v.shape, v.dtype) for v in self.variables)]
        if self._is_packed:
            sums = [tf.TensorSpec([sum(spec.shape.num_elements() for spec in sums)], tf.float32)]
        rate, step = tf.TensorSpec([], tf.float32), tf.TensorSpec([], tf.int64)
        signature = [AdamHandles(handles, handles, handles), [_HANDLE] * len(self.averages), sums, rate, step]
        return trace(self._update, signature, copied=self._is_tpu)

    def _gradients(
        self, weights: list[Tensor], source: Tensor, target: Tensor, scale: Tensor, seed: Tensor
    ) -> list[Tensor]:
        """Loss and gradients of a replica's rows: as they are, or all in one vector if replicas have to add them up.

        Args:
            weights: handles of the replica's variables.
            source: int32 [rows, source_len].
            target: int32 [rows, target_len].
            scale: float32 scalar that loss and gradients are multiplied by.
            seed: int32 [2], of the replica's dropout.
        """
        values = [_read(handle, variable) for handle, variable in zip(weights, self.variables, strict=True)]
        loss, gradients = self._accumulated(values, source, target, scale, seed)
        sums = [loss, *gradients]
        return [tf.concat([tf.reshape(part, [-1]) for part in sums], 0)] if self._is_packed else sums

    def _update(
        self, adam: AdamHandles, averages: list[Tensor], sums: list[Tensor], rate: Tensor, step: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Updates a replica's variables.

        Args:
            adam: handles of what Adam changes.
            averages: handles of the moving averages.
            sums: what `_gradients` returns, summed over the replicas.
            rate: float32 scalar, the learning rate.
            step: int64 scalar, the number of this update, from 1.

        Returns:
            The loss, and the norm of the gradients before clipping, float32 scalars.
        """
        if self._is_packed:
            shapes = [tf.TensorShape([]), *(variable.shape for variable in self.variables)]
            parts = tf.split(sums[0], [shape.num_elements() for shape in shapes])
            sums = [tf.reshape(part, shape) for part, shape in zip(parts, shapes, strict=True)]
        loss, *gradients = sums
        norm = tf.linalg.global_norm(gradients)
        if self.config.clip_norm:
            gradients, _ = tf.clip_by_global_norm(gradients, self.config.clip_norm, norm)
        self.adam.apply(gradients, rate, step, adam)
        for average, weight, variable in zip(averages, adam.weights, self.variables, strict=False):
            change = _read(weight, variable) - _read(average, variable)
            tf.raw_ops.AssignAddVariableOp(resource=average, value=(1.0 - self.config.ema_decay) * change)
        return loss, norm

    def _accumulated(
        self, weights: list[Tensor], source: Tensor, target: Tensor, scale: Tensor, seed: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """Loss and gradients of the replica's rows, in `accumulation_steps` parts one after the other."""
        parts = self.config.accumulation_steps
        if parts == 1:
            return self._side_by_side(weights, source, target, scale, fold_in(seed, 0))
        # With the parts as an axis of its own, XLA sees that each has the same static shape.
        source, target = _in_parts(source, parts), _in_parts(target, parts)

        def add(index: Tensor, loss: Tensor, gradients: list[Tensor]) -> tuple:
            part_loss, part_gradients = self._side_by_side(
                weights, source[index], target[index], scale, fold_in(seed, index)
            )
            return index + 1, loss + part_loss, [a + b for a, b in zip(gradients, part_gradients, strict=True)]

        start = (tf.constant(0), tf.constant(0.0), [tf.zeros_like(weight) for weight in weights])
        _, loss, gradients = tf.while_loop(lambda index, *_: index < parts, add, start, parallel_iterations=1)
        return loss, gradients

    def _side_by_side(
        self, weights: list[Tensor], source: Tensor, target: Tensor, scale: Tensor, seed: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """Loss and gradients of some rows; every stream takes its share of them at the same time as the others."""
        count = self._streams
        if count == 1:
            return self._row_gradients(weights, source, target, scale, seed)
        # Rows come in order of length: every count-th one gives the streams equal work.
        results = [
            self._row_gradients(weights, source[i::count], target[i::count], scale, fold_in(seed, i))
            for i in range(count)
        ]
        losses, gradients = zip(*results, strict=True)
        return tf.add_n(losses), [tf.add_n(parts) for parts in zip(*gradients, strict=True)]

    def _validation_loss(self, batches: Iterator[Any], count: Tensor) -> tuple[Tensor, Tensor]:
        def replica_loss(batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
            states = self.model.states(batch, training=False, skip_padding=self._skip_padding)
            table = self.model.output_embedding.table.value
            loss = fused_loss(
                states, table, batch["target"], 0.0, skip_padding=self._skip_padding, for_cpu=self._for_cpu
            )
            return loss.loss_sum, tf.math.count_nonzero(batch["target"], dtype=tf.float32)

        def add(index: Tensor, *sums: Tensor) -> tuple[Tensor, ...]:
            parts = self.strategy.run(replica_loss, args=(next(batches),), options=_SHAPES_AS_THEY_ARE)
            parts = [self.strategy.reduce(SUM, part, axis=None) for part in parts]
            return index + 1, *(before + part for before, part in zip(sums, parts, strict=True))

        start = (tf.constant(0), tf.constant(0.0), tf.constant(0.0))
        _, loss, tokens = tf.while_loop(lambda index, *_: index < count, add, start, parallel_iterations=1)
        return loss, tokens

    def _seed(self, replica_id: Tensor) -> Tensor:
        """int32 [2], a function of the run's seed, the step and the replica alone."""
        words = tf.stack([tf.constant(self.config.seed, tf.int64), tf.cast(self.step, tf.int64)])
        mixed = tf.random.stateless_uniform([2], words, minval=None, maxval=None, dtype=tf.int32, alg="philox")
        return fold_in(mixed, tf.cast(replica_id, tf.int32))


@contextlib.contextmanager
def _fewer_rewrites() -> Iterator[None]:
    """Inside, TensorFlow leaves out those rewrites of new graphs that take seconds and make no step faster on a CPU."""
    before = tf.config.optimizer.get_experimental_options()
    tf.config.optimizer.set_experimental_options(dict.fromkeys(_REWRITES_LEFT_OUT, False))
    try:
        yield
    finally:
        # None is what TensorFlow does by itself.
        tf.config.optimizer.set_experimental_options({name: before.get(name) for name in _REWRITES_LEFT_OUT})


def _read(handle: Tensor, variable: tf.Variable) -> Tensor:
    """The value of a variable like another one, of which only the handle is at hand."""
    value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=variable.dtype)
    value.set_shape(variable.shape)
    return value


def _in_parts(ids: Tensor, parts: int) -> Tensor:
    """Equal parts of a share's rows: [rows, length] --> [parts, rows / parts, length]."""
    return tf.reshape(ids, [parts, -1, tf.shape(ids)[1]])

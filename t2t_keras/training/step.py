"""One training step on every replica: forward, backward, all-reduce, update.

Each replica divides its sum of token losses by the number of target tokens of all replicas. Losses and gradients are
then summed over replicas. For a given global batch, the number of replicas thus changes only random draws and rounding.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_keras.config import TrainConfig
from t2t_keras.errors import InputError
from t2t_keras.layers.dropout import fold_in
from t2t_keras.models.contract import SequenceModel
from t2t_keras.models.weights import check_weights, frozen_names, weight_names
from t2t_keras.tensor import Tensor
from t2t_keras.training.devices.strategy import is_tpu, next_shares, num_streams
from t2t_keras.training.layout import MatrixLayout
from t2t_keras.training.objectives import make_objective
from t2t_keras.training.objectives.objective import Rows
from t2t_keras.training.objectives.stateless_model import Pairs, StatelessModel
from t2t_keras.training.optimizer import Adam
from t2t_keras.training.traced import TracedFunction
from t2t_keras.training.updates import StepMetrics, clipped, moved_average, update_rate

SUM = tf.distribute.ReduceOp.SUM

# All replicas get batches of one shape, which the epoch plan sets. By default, TensorFlow assumes on a TPU that lengths
# unknown to the graph differ between replicas. With this option, it compiles one program per shape.
_SHAPES_AS_THEY_ARE = tf.distribute.RunOptions(experimental_enable_dynamic_batch_size=False)

_IDS = tf.TensorSpec([None, None], tf.int32)


class TrainingStep:
    """The compiled training step, with its own copy of the weights and the optimizer's state on every replica.

    Args:
        model: a built model, from whose weights training starts. It need not be created in the strategy's scope.
            Training does not change it; `fill_model` copies the trained weights to it.
        config: training settings.
        strategy: the devices.

    Attributes:
        last_step: number of the last update, after which a decaying learning rate reaches zero. It may be changed
            between two calls of `run`.

    Raises:
        InputError: the strategy is for a TPU and `static_shapes` is false, or a pattern of `frozen` matches no weight,
            or all weights are frozen.
    """

    def __init__(self, model: SequenceModel, config: TrainConfig, strategy: tf.distribute.Strategy) -> None:
        if is_tpu(strategy) and not config.static_shapes:
            raise InputError("a TPU needs --set train.static_shapes=true")
        self.model, self.config, self.strategy = model, config, strategy
        self.names = weight_names(model)
        self.last_step = config.max_steps
        self._is_tpu = is_tpu(strategy)  # a TPU compiles the whole step, update included
        self._streams = num_streams(strategy)
        start = [variable.numpy() for variable in model.trainable_variables]
        self.layout = MatrixLayout((array.shape for array in start), self._streams)
        with strategy.scope():
            self.weights = [tf.Variable(matrix, name="weights") for matrix in self.layout.join_arrays(start)]
            self.adam = Adam(self.weights, config.adam_beta1, config.adam_beta2, config.adam_epsilon)
            self.step = tf.Variable(0, dtype=tf.int64, trainable=False, name="step")
            matrices = self.weights if config.ema_decay else []
            self.averages = [tf.Variable(weights, trainable=False, name="average") for weights in matrices]
        self._for_cpu = "CPU" in self.weights[0].device and not self._is_tpu
        self.objective = make_objective(config)
        self._stateless_model = StatelessModel(
            model,
            self.layout,
            skip_padding=not (config.jit_compile or self._is_tpu),
            for_cpu=self._for_cpu,
            frozen=frozen_names(self.names, config.frozen),
        )
        self._run = tf.function(self._steps, autograph=False)
        self._validate = tf.function(self._validation_loss, autograph=False)

    @functools.cached_property
    def row_gradients(self) -> Callable[..., tuple[Tensor, list[Tensor]]]:
        """The objective of some rows of a batch: (*weights, source, target, scale, seed, step) --> (sums, gradients).

        Weights and gradients are float32 matrices (see `MatrixLayout`). Source and target are int32 [rows, length],
        padded with 0. `Rows` describes the other arguments, and `Objective` the sums.

        All streams, accumulation parts and replicas call the same traced function, so that the time until training
        starts does not grow with their number. The first access traces the function, and must be outside of all graphs,
        tapes and replicas.
        """
        scale, seed, step = tf.TensorSpec([]), tf.TensorSpec([2], tf.int32), tf.TensorSpec([], tf.int64)

        def row_function(*arguments: Tensor) -> tuple[Tensor, list[Tensor]]:
            *matrices, source, target, scale, seed, step = arguments
            return self.objective(self._stateless_model, matrices, Rows(Pairs(source, target), scale, seed, step))

        return self._trace(row_function, scale, seed, step)

    @functools.cached_property
    def row_loss(self) -> Callable[..., Tensor]:
        """The validation loss: (*weights, source, target) --> sum of the token losses, a float32 scalar.

        The loss is without dropout and label smoothing. Arguments and tracing are as in `row_gradients`.
        """
        return self._trace(lambda *arguments: self._stateless_model.loss_sum(arguments[:-2], Pairs(*arguments[-2:])))

    def _trace(self, function: Callable, *specs: tf.TensorSpec) -> Callable:
        """Traces a function of the weights, source, target and `specs`, for calls from graphs."""
        weights = [tf.TensorSpec(shape, tf.float32) for shape in self.layout.shapes]
        signature = [*weights, _IDS, _IDS, *specs]
        if not (self.config.jit_compile or self._is_tpu):
            return TracedFunction(function, signature, fewer_rewrites=self._for_cpu)
        # XLA compiles the function once per shape. On a TPU it compiles whole graphs, of which the function is a part.
        jit_compile = None if self._is_tpu else True
        return tf.function(function, signature, autograph=False, jit_compile=jit_compile).get_concrete_function()

    def run(self, batches: Iterator[Any], steps: int) -> StepMetrics:
        """Runs `steps` training steps without returning to Python.

        Args:
            batches: iterator from `distributed`.
            steps: number of steps.

        Returns:
            The metrics of each step.
        """
        with self._limit_rewrites():
            _ = self.row_gradients  # traced outside of the replicas' graph
            counts = tf.constant(steps), tf.constant(self.last_step, tf.int64)
            loss, tokens, rate, norm, *measures = (values.numpy() for values in self._run(batches, *counts))
        return StepMetrics(loss, tokens, rate, norm, dict(zip(self.objective.measures, measures, strict=True)))

    @staticmethod
    def is_out_of_memory(error: Exception) -> bool:
        """Returns whether an error of `run` means that a device is out of memory."""
        return isinstance(error, tf.errors.ResourceExhaustedError)

    @property
    def num_updates(self) -> int:
        """Number of updates so far."""
        return int(self.step.numpy())

    def validation_loss(self, batches: Iterator[Any], count: int) -> tuple[float, float]:
        """Computes the loss without dropout and label smoothing, of the moving averages if they are kept.

        Args:
            batches: iterator from `distributed`.
            count: number of batches.

        Returns:
            The sum of the token losses, and the number of target tokens, over all batches and replicas.
        """
        with self._limit_rewrites():
            _ = self.row_loss
            loss, tokens = self._validate(batches, tf.constant(count))
        return float(loss), float(tokens)

    def fill_model(self) -> None:
        """Copies the weights, or their moving averages if they are kept, to the model."""
        arrays = self.layout.split_arrays([matrix.numpy() for matrix in self._evaluation_weights()])
        for variable, array in zip(self.model.trainable_variables, arrays, strict=True):
            variable.assign(array)

    def read(self) -> dict[str, dict[str, np.ndarray]]:
        """Returns the training state, except for the step count.

        Returns:
            float32 arrays by weight name for each of "weights", "first_moments" and "second_moments", and for "ema" if
            moving averages are kept.
        """
        return {
            part: dict(zip(self.names, self.layout.split_arrays([matrix.numpy() for matrix in matrices]), strict=True))
            for part, matrices in self._parts().items()
        }

    def write(self, state: dict[str, dict[str, np.ndarray]], step: int) -> None:
        """Restores the training state.

        Args:
            state: from `read`.
            step: number of updates before the state was read.

        Raises:
            InputError: names or shapes of the arrays do not match the model's weights.
        """
        parts = self._parts()
        for part, values in state.items():
            check_weights(self.model, values, part)
            arrays = self.layout.join_arrays([values[name] for name in self.names])
            for matrix, array in zip(parts[part], arrays, strict=True):
                matrix.assign(array)
        self.step.assign(step)

    def _parts(self) -> dict[str, list[tf.Variable]]:
        moments = {"first_moments": self.adam.first_moments, "second_moments": self.adam.second_moments}
        averages = {"ema": self.averages} if self.averages else {}
        return {"weights": self.weights, **moments, **averages}

    def _evaluation_weights(self) -> list[tf.Variable]:
        """Returns the weights to validate and to translate with: the moving averages if they are kept."""
        return self.averages or self.weights

    def _steps(self, batches: Iterator[Any], steps: Tensor, last_step: Tensor) -> tuple[Tensor, ...]:
        """Runs `steps` steps in a graph; returns each metric, float32 [steps]."""

        def take(index: Tensor, arrays: tuple) -> tuple:
            batch = next_shares(self.strategy, batches)
            replicated = self.strategy.run(self._replica_step, args=(batch, last_step), options=_SHAPES_AS_THEY_ARE)
            values = [self.strategy.experimental_local_results(value)[0] for value in replicated]
            return index + 1, tuple(array.write(index, value) for array, value in zip(arrays, values, strict=True))

        count = 4 + len(self.objective.measures)
        arrays = tuple(tf.TensorArray(tf.float32, steps, element_shape=[]) for _ in range(count))
        start = (tf.constant(0), arrays)
        _, arrays = tf.while_loop(lambda index, _: index < steps, take, start, parallel_iterations=1)
        return tuple(array.stack() for array in arrays)  # --> [steps] each

    def _replica_step(self, batch: dict[str, Tensor], last_step: Tensor) -> tuple[Tensor, ...]:
        """Runs one step on one replica; returns metrics, which are the same on every replica."""
        replica = tf.distribute.get_replica_context()
        tokens = tf.math.count_nonzero(batch["target"], dtype=tf.float32)
        total_tokens = replica.all_reduce(SUM, tokens)
        scale = 1.0 / tf.maximum(total_tokens, 1.0)
        seed = fold_in(step_seed(self.config.seed, self.step), tf.cast(replica.replica_id_in_sync_group, tf.int32))
        sums, gradients = self._gradients(batch["source"], batch["target"], scale, seed)
        # Two calls, because TensorFlow would concatenate the tensors of a single call and copy all gradients twice.
        sums, gradients = replica.all_reduce(SUM, sums), replica.all_reduce(SUM, gradients)
        gradients, norm = clipped(gradients, self.config.clip_norm)
        step = self.step + 1
        rate = update_rate(self.config, self.model.config.d_model, step, last_step)
        self.adam.apply(gradients, rate, step)
        for average, matrix in zip(self.averages, self.weights, strict=False):
            average.assign(moved_average(average, matrix, self.config.ema_decay))
        self.step.assign_add(1)
        loss, *measures = tf.unstack(sums)
        return loss, total_tokens, rate, norm, *measures

    @contextlib.contextmanager
    def _limit_rewrites(self) -> Iterator[None]:
        """A context in which TensorFlow does not rewrite new graphs if training runs on a CPU.

        On other devices the rewrites stay enabled, because the effect was measured only on CPUs. A `TracedFunction`
        that such a graph calls has its own setting.
        """
        if not self._for_cpu:
            yield
            return
        setting = tf.config.optimizer.get_experimental_options()["disable_meta_optimizer"]
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
        try:
            yield
        finally:
            tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": setting})

    def _gradients(self, source: Tensor, target: Tensor, scale: Tensor, seed: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Computes the objective's sums and gradients for a replica's rows, in `accumulation_steps` sequential parts.

        On a single CPU, the streams compute the rows of a part in parallel.
        """
        weights = [tf.convert_to_tensor(matrix) for matrix in self.weights]
        parts, streams, step = self.config.accumulation_steps, self._streams, tf.convert_to_tensor(self.step)

        def part_gradients(source: Tensor, target: Tensor, seed: Tensor) -> tuple[Tensor, list[Tensor]]:
            if streams == 1:
                return self.row_gradients(*weights, source, target, scale, seed, step)
            # Rows are sorted by length, so that streams with every n-th row have equal work.
            results = [
                self.row_gradients(*weights, source[i::streams], target[i::streams], scale, fold_in(seed, i), step)
                for i in range(streams)
            ]
            sums, gradients = zip(*results, strict=True)
            return tf.add_n(sums), [tf.add_n(shares) for shares in zip(*gradients, strict=True)]

        if parts == 1:
            return part_gradients(source, target, fold_in(seed, 0))
        # With a separate axis for the parts, XLA sees that all parts have the same static shape.
        source, target = _split_parts(source, parts), _split_parts(target, parts)

        def add(index: Tensor, sums: Tensor, gradients: list[Tensor]) -> tuple:
            part_sums, additions = part_gradients(source[index], target[index], fold_in(seed, index))
            return index + 1, sums + part_sums, [a + b for a, b in zip(gradients, additions, strict=True)]

        zeros = tf.zeros([1 + len(self.objective.measures)])
        start = (tf.constant(0), zeros, [tf.zeros(shape) for shape in self.layout.shapes])
        _, sums, gradients = tf.while_loop(lambda index, *_: index < parts, add, start, parallel_iterations=1)
        return sums, gradients

    def _validation_loss(self, batches: Iterator[Any], count: Tensor) -> tuple[Tensor, Tensor]:
        """Computes the sums of `validation_loss` in a graph."""

        def replica_loss(batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
            weights = [tf.convert_to_tensor(matrix) for matrix in self._evaluation_weights()]
            loss = self.row_loss(*weights, batch["source"], batch["target"])
            return loss, tf.math.count_nonzero(batch["target"], dtype=tf.float32)

        def add(index: Tensor, *sums: Tensor) -> tuple[Tensor, ...]:
            batch = next_shares(self.strategy, batches)
            parts = self.strategy.run(replica_loss, args=(batch,), options=_SHAPES_AS_THEY_ARE)
            parts = [self.strategy.reduce(SUM, part, axis=None) for part in parts]
            return index + 1, *(total + part for total, part in zip(sums, parts, strict=True))

        start = (tf.constant(0), tf.constant(0.0), tf.constant(0.0))
        _, loss, tokens = tf.while_loop(lambda index, *_: index < count, add, start, parallel_iterations=1)
        return loss, tokens


def step_seed(seed: int, step: Tensor) -> Tensor:
    """Returns the seed of an update, int32 [2], which depends only on the run's seed and the number of past updates."""
    words = tf.stack([tf.constant(seed, tf.int64), tf.cast(step, tf.int64)])
    return tf.random.stateless_uniform([2], words, minval=None, maxval=None, dtype=tf.int32, alg="philox")


def _split_parts(ids: Tensor, parts: int) -> Tensor:
    """Splits rows into equal parts: [rows, length] --> [parts, rows / parts, length]."""
    return tf.reshape(ids, [parts, -1, tf.shape(ids)[1]])

"""One training step on every replica of JAX devices: forward, backward, all-reduce, update.

Every replica has its own rows, as under `tf.distribute`. It divides its sum of token losses by the number of target
tokens of all replicas. Losses and gradients are then summed over replicas. The code of a replica is written for one
device. If a replica has several devices, XLA partitions the computation according to the sharding of the weights
(`jax_layout.py`). This module does not import TensorFlow.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import keras
import numpy as np
from jax import numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from t2t_keras.config import TrainConfig
from t2t_keras.errors import InputError
from t2t_keras.layers.dropout import fold_in
from t2t_keras.models.contract import SequenceModel, States
from t2t_keras.models.weights import check_weights, frozen_names, weight_names
from t2t_keras.symbols import PAD_ID
from t2t_keras.tensor import Tensor
from t2t_keras.training.consistency import Consistency
from t2t_keras.training.on_jax.jax_devices import BATCH, JaxDevices, in_host_memory, is_out_of_memory
from t2t_keras.training.on_jax.jax_layout import weight_layout
from t2t_keras.training.on_jax.jax_loss import scaled_loss
from t2t_keras.training.updates import Head, StepMetrics, adam, clipped, moved_average, update_rate


class TrainingState(NamedTuple):
    """The arrays that a step updates, or their shardings.

    Attributes:
        weights: float32 arrays, in the order of the model's trainable variables.
        first_moments: moving averages of the gradients, in the weights' shapes.
        second_moments: moving averages of the squared gradients, likewise.
        averages: moving averages of the weights, likewise; empty if none are kept.
    """

    weights: list[Tensor]
    first_moments: list[Tensor]
    second_moments: list[Tensor]
    averages: list[Tensor]


class JaxStep:
    """The counterpart of `TrainingStep` on JAX, with the same interface for the trainer.

    Args:
        model: a built model, from whose weights training starts. Training does not change it; `fill_model` copies the
            trained weights to it.
        config: training settings.
        devices: the devices.

    Attributes:
        num_updates: number of updates so far.
        last_step: as in `TrainingStep`.

    Raises:
        InputError: `static_shapes` is false, a pattern of `frozen` matches no weight, all weights are frozen, or the
            weights cannot be split.
    """

    def __init__(self, model: SequenceModel, config: TrainConfig, devices: JaxDevices) -> None:
        if not config.static_shapes:
            raise InputError("Keras on JAX needs --set train.static_shapes=true: XLA recompiles for every shape")
        self.model, self.config, self.strategy = model, config, devices
        self.names = weight_names(model)
        frozen = frozen_names(self.names, config.frozen)
        self._trained_indices = [index for index, name in enumerate(self.names) if name not in frozen]
        places = {id(variable): place for place, variable in enumerate(model.trainable_variables)}
        head = model.output_head
        self._head_places = [places[id(head.table)], None if head.bias is None else places[id(head.bias)]]
        self._consistency = Consistency.of(config)
        self._replicated_sharding = NamedSharding(devices.mesh, PartitionSpec())
        self._batch_sharding = NamedSharding(devices.mesh, PartitionSpec(BATCH))
        self._num_local = len(devices.replicas_of(jax.process_index()))
        layout = weight_layout(model, devices)
        self._layout = TrainingState(layout, layout, layout, layout if config.ema_decay else [])
        start = [np.asarray(variable) for variable in model.trainable_variables]
        zeros = [np.zeros_like(array) for array in start]
        averages = start if config.ema_decay else []
        self._state = jax.device_put(TrainingState(start, zeros, zeros, averages), self._layout)
        self.num_updates, self.last_step = 0, config.max_steps
        scalars = PartitionSpec(), PartitionSpec(), PartitionSpec()
        results = self._layout, self._replicated_sharding
        self._update = self._on_replicas(self._replica_update, *scalars, donate_argnums=0, out_shardings=results)
        self._validate = self._on_replicas(self._replica_validation, out_shardings=self._replicated_sharding)

    is_out_of_memory = staticmethod(is_out_of_memory)

    def run(self, batches: Iterator[Any], steps: int) -> StepMetrics:
        """Runs `steps` training steps.

        Args:
            batches: iterator with one element per replica of this process, consecutively, for each batch.
            steps: number of steps.

        Returns:
            The metrics of each step.
        """
        metrics = []
        for _ in range(steps):
            random = np.random.Philox(key=(self.config.seed % 2**64) + (self.num_updates << 64))
            seed = random.random_raw(1).view(np.int32)  # --> [2]
            counts = np.int32(self.num_updates + 1), np.int32(self.last_step)
            scalars = jax.device_put((seed, *counts), self._replicated_sharding)
            self._state, values = self._update(self._state, *self._next(batches), *scalars)
            metrics.append(values)
            self.num_updates += 1
        return StepMetrics(*np.array(jax.device_get(metrics), np.float32).T)

    def validation_loss(self, batches: Iterator[Any], count: int) -> tuple[float, float]:
        """See `TrainingStep.validation_loss`."""
        weights = self._state.averages or self._state.weights
        sums = [self._validate(weights, *self._next(batches)) for _ in range(count)]
        loss, tokens = np.array(jax.device_get(sums), np.float64).sum(axis=0)
        return float(loss), float(tokens)

    def fill_model(self) -> None:
        """See `TrainingStep.fill_model`."""
        arrays = self._state.averages or self._state.weights
        with in_host_memory():
            for variable, array in zip(self.model.trainable_variables, arrays, strict=True):
                variable.assign(_host(array))

    def read(self) -> dict[str, dict[str, np.ndarray]]:
        """See `TrainingStep.read`."""
        parts = {part: arrays for part, arrays in self._state._asdict().items() if arrays}
        result = {part: dict(zip(self.names, map(_host, arrays), strict=True)) for part, arrays in parts.items()}
        return {("ema" if part == "averages" else part): arrays for part, arrays in result.items()}

    def write(self, state: dict[str, dict[str, np.ndarray]], step: int) -> None:
        """See `TrainingStep.write`."""
        for part, values in state.items():
            check_weights(self.model, values, part)
        lists = {part: [values[name] for name in self.names] for part, values in state.items()}
        averages = lists.pop("ema", [])
        self._state = jax.device_put(TrainingState(**lists, averages=averages), self._layout)
        self.num_updates = step

    def _next(self, batches: Iterator[Any]) -> list[Tensor]:
        """Returns the sources and the targets of the next global batch, with rows sharded over the replicas."""
        shares = [next(batches) for _ in range(self._num_local)]
        sides = (np.concatenate([np.asarray(share[side]) for share in shares]) for side in ("source", "target"))
        return [jax.make_array_from_process_local_data(self._batch_sharding, ids) for ids in sides]

    def _on_replicas(self, function: Callable, *specs: PartitionSpec, **options: Any) -> Callable:
        """Compiles a function that runs on every replica with its own rows.

        Args:
            function: takes arrays that all replicas share, the replica's sources and targets, and further arguments. It
                must return the same results on every replica.
            *specs: partition specs of the further arguments.
            **options: options of `jax.jit`.
        """
        mesh, rows = self.strategy.mesh, PartitionSpec(BATCH)
        program = jax.shard_map(
            function,
            mesh=mesh,
            in_specs=(PartitionSpec(), rows, rows, *specs),
            out_specs=PartitionSpec(),
            # With several devices per replica, XLA itself partitions the computation along the other axis.
            axis_names={BATCH} if self.strategy.model_parallel > 1 else set(mesh.axis_names),
            check_vma=False,
        )
        return jax.jit(program, **options)

    def _sum_replicas(self, values: Any) -> Any:
        """Sums arrays over all replicas.

        A single replica skips the sum, which XLA does not compile if the replica has several devices.
        """
        return values if self.strategy.num_replicas_in_sync == 1 else jax.lax.psum(values, BATCH)

    def _replica_update(
        self, state: TrainingState, source: Tensor, target: Tensor, seed: Tensor, step: Tensor, last_step: Tensor
    ) -> tuple[TrainingState, tuple[Tensor, ...]]:
        """Runs one step on one replica; returns the next state and the metrics, the same on every replica."""
        config = self.config
        tokens = self._sum_replicas(jnp.sum(target != PAD_ID, dtype="float32"))
        scale = 1.0 / jnp.maximum(tokens, 1.0)
        seed = fold_in(seed, jax.lax.axis_index(BATCH))
        sums = self._accumulate(state.weights, source, target, scale, seed)
        loss, gradients = self._sum_replicas(sums)
        gradients, norm = clipped(gradients, config.clip_norm)
        rate = update_rate(config, self.model.config.d_model, step, last_step)
        return self._apply(state, gradients, rate, step), (loss, tokens, rate, norm)

    def _apply(self, state: TrainingState, gradients: list[Tensor], rate: Tensor, step: Tensor) -> TrainingState:
        """Updates the trained weights, their moments, and the moving averages if they are kept."""
        weights, first, second = list(state.weights), list(state.first_moments), list(state.second_moments)
        for i, gradient in zip(self._trained_indices, gradients, strict=True):
            weights[i], (first[i], second[i]) = adam(
                weights[i], (first[i], second[i]), gradient, rate, step, self.config
            )
        pairs = zip(state.averages, weights, strict=False)
        averages = [moved_average(average, weight, self.config.ema_decay) for average, weight in pairs]
        return TrainingState(weights, first, second, averages)

    def _accumulate(
        self, weights: list[Tensor], source: Tensor, target: Tensor, scale: Tensor, seed: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """Computes the scaled loss of a replica's rows and its gradients, in `accumulation_steps` sequential parts."""
        parts = self.config.accumulation_steps
        value_and_gradient = jax.value_and_grad(functools.partial(self._loss, weights))
        trained = [weights[index] for index in self._trained_indices]
        if parts == 1:
            return value_and_gradient(trained, source, target, scale, fold_in(seed, 0))

        def add(sums: Any, part: tuple[Tensor, ...]) -> tuple[Any, None]:
            index, rows = part[0], part[1:]
            results = value_and_gradient(trained, *rows, scale, fold_in(seed, index))
            return jax.tree.map(jnp.add, sums, results), None

        zeros = jnp.zeros(()), [jnp.zeros_like(weight) for weight in trained]
        sides = (jnp.reshape(side, (parts, -1, side.shape[1])) for side in (source, target))
        return jax.lax.scan(add, zeros, (jnp.arange(parts), *sides))[0]

    def _loss(
        self,
        weights: list[Tensor],
        trained_weights: list[Tensor],
        source: Tensor,
        target: Tensor,
        scale: Tensor,
        seed: Tensor,
    ) -> Tensor:
        """Computes the scaled sum of the label-smoothed token losses and the auxiliary loss, with dropout.

        Args:
            weights: all weights; `trained_weights` replaces the trained ones.
            trained_weights: the trained weights, with respect to which the loss is differentiated.
            source: int32 [rows, source_len], padded with 0.
            target: int32 [rows, target_len], padded with 0.
            scale: float32 scalar, 1 / (number of target tokens in the global batch).
            seed: int32 [2], seed of the dropout.
        """
        weights = list(weights)
        for index, weight in zip(self._trained_indices, trained_weights, strict=True):
            weights[index] = weight
        inputs, terms = (source, target), None
        if self._consistency is not None:
            inputs, terms = self._consistency.doubled(source, target, seed), self._consistency.terms
        states = self._states(weights, *inputs, seed)
        loss = scaled_loss(states.hidden, self._head(weights), target, scale, self.config.label_smoothing, terms)
        auxiliary_loss = scale * states.auxiliary_loss.astype("float32")
        return loss + auxiliary_loss / (1.0 if terms is None else 2.0)  # the mean over both predictions

    def _replica_validation(self, weights: list[Tensor], source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self._states(weights, source, target).hidden
        loss = scaled_loss(hidden, self._head(weights), target, jnp.float32(1), 0.0)
        return self._sum_replicas((loss, jnp.sum(target != PAD_ID, dtype="float32")))

    def _states(self, weights: list[Tensor], source: Tensor, target: Tensor, seed: Tensor | None = None) -> States:
        """Computes hidden states and the auxiliary loss of some rows, with dropout if there is a seed."""
        with keras.StatelessScope(list(zip(self.model.trainable_variables, weights, strict=True))):
            return self.model.states({"source": source, "target": target}, seed=seed, training=seed is not None)

    def _head(self, weights: list[Tensor]) -> Head:
        """Selects the weights of the output head."""
        return Head(*(None if place is None else weights[place] for place in self._head_places))


def _host(array: Tensor) -> np.ndarray:
    """Copies a sharded array to the host; every process has all shards, because replicas do not span processes."""
    parts = {tuple(each.start for each in shard.index): shard for shard in array.addressable_shards}
    result = np.empty(array.shape, array.dtype)
    for shard in parts.values():
        result[shard.index] = shard.data
    return result

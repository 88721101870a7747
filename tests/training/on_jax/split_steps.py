"""Steps of a Transformer on meshes of devices, for a process with Keras on JAX and four devices."""

import itertools
from collections.abc import Iterator
from typing import Any

import jax
import keras
import numpy as np

from t2t_keras.config import TrainConfig
from t2t_keras.models.transformer import Transformer
from t2t_keras.training.on_jax.jax_devices import JaxDevices
from t2t_keras.training.on_jax.jax_step import JaxStep
from tests.training.tiny_families import tiny_family

STEPS, FURTHER, VOCAB = 20, 5, 52
SIZES = {"num_encoder_layers": 1, "num_decoder_layers": 1, "num_heads": 4, "vocab_size": VOCAB}
TRAIN: dict[str, Any] = {
    "static_shapes": True,
    "clip_norm": 1.0,
    "ema_decay": 0.9,
    "accumulation_steps": 2,
    "warmup_steps": STEPS,
}


def step_on(replicas: int, model_parallel: int, dropout_rate: float = 0.0) -> JaxStep:
    """Returns the step of a new model, always with the same weights, on replicas of several devices each."""
    keras.utils.set_random_seed(1)
    model = Transformer(tiny_family("transformer", **SIZES, dropout_rate=dropout_rate))
    model.build()
    devices = JaxDevices(jax.devices()[: replicas * model_parallel], model_parallel)
    return JaxStep(model, TrainConfig(**TRAIN), devices)


def shares(replicas: int) -> Iterator[dict[str, np.ndarray]]:
    """Yields the replicas' shares of batches of 16 rows with different lengths."""
    random = np.random.default_rng(1)
    while True:
        lengths = random.integers(3, 13, (16, 1))
        ids = random.integers(3, VOCAB, (2, 16, 12)) * (np.arange(12) < lengths)
        for replica in range(replicas):
            yield dict(zip(("source", "target"), ids[:, replica::replicas].astype(np.int32), strict=True))


def numbers(step: JaxStep, count: int) -> dict[str, Any]:
    """Returns losses and gradient norms of the next steps, and the bytes of the state: per device and in total."""
    replicas = step.strategy.num_replicas_in_sync
    metrics = step.run(itertools.islice(shares(replicas), step.num_updates * replicas, None), count)
    arrays = jax.tree.leaves(step._state)
    held = dict.fromkeys((device.id for device in step.strategy.mesh.devices.flat), 0)
    for shard in (shard for array in arrays for shard in array.addressable_shards):
        held[shard.device.id] += shard.data.nbytes
    return {
        "loss": metrics.loss.tolist(),
        "gradient_norm": metrics.gradient_norm.tolist(),
        "held": list(held.values()),
        "whole": sum(array.nbytes for array in arrays),
    }


def all_numbers() -> dict[str, dict[str, Any]]:
    """Returns the results for each mesh, for further meshes, and with dropout."""
    steps = {mesh: step_on(*mesh) for mesh in ((1, 1), (2, 2))}
    actual = {str(mesh): numbers(step, STEPS) for mesh, step in steps.items()}
    steps[1, 1].write(steps[2, 2].read(), STEPS)
    actual |= {f"{mesh} resumed": numbers(steps[mesh], FURTHER) for mesh in ((1, 1), (2, 2))}
    return actual | {f"{mesh} with dropout": numbers(step_on(*mesh, 0.3), STEPS) for mesh in ((1, 1), (1, 4))}

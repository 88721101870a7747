"""What a training computes with: TensorFlow, or JAX if Keras is told so (KERAS_BACKEND=jax)."""

from typing import TYPE_CHECKING, TypeAlias, Union

import keras
import tensorflow as tf

from t2t_keras.config import TrainConfig
from t2t_keras.errors import InputError
from t2t_keras.models.contract import SequenceModel
from t2t_keras.training.devices.strategy import make_strategy
from t2t_keras.training.devices.workers import Workers
from t2t_keras.training.step import TrainingStep

if TYPE_CHECKING:
    from t2t_keras.training.on_jax.jax_devices import JaxDevices
    from t2t_keras.training.on_jax.jax_step import JaxStep

Devices: TypeAlias = Union[tf.distribute.Strategy, "JaxDevices"]
Step: TypeAlias = Union[TrainingStep, "JaxStep"]


def is_on_jax() -> bool:
    """Whether Keras runs on JAX."""
    return keras.backend.backend() == "jax"


def make_devices(name: str = "auto", replicas: int = 0, cluster: str = "auto") -> Devices:
    """Makes what a training runs on; arguments and errors are those of `make_strategy`.

    Raises:
        InputError: also on another backend than TensorFlow and JAX.
    """
    if is_on_jax():
        from t2t_keras.training.on_jax.jax_workers import make_jax_devices

        return make_jax_devices(name, replicas, cluster)
    if (backend := keras.backend.backend()) != "tensorflow":
        raise InputError(f"KERAS_BACKEND={backend}: runs are trained on tensorflow or jax; here use Keras's own fit")
    return make_strategy(name, replicas, cluster)


def make_workers(devices: Devices) -> Workers:
    """The processes that train together."""
    if is_on_jax():
        from t2t_keras.training.on_jax.jax_workers import JaxWorkers

        return JaxWorkers(devices)
    return Workers(devices)


def make_step(model: SequenceModel, config: TrainConfig, devices: Devices) -> Step:
    """The compiled training step of a model; raises as `TrainingStep` and `JaxStep` do."""
    if is_on_jax():
        from t2t_keras.training.on_jax.jax_step import JaxStep

        return JaxStep(model, config, devices)
    return TrainingStep(model, config, devices)

"""Selects the training backend: TensorFlow, or JAX if KERAS_BACKEND=jax."""

import contextlib
from typing import TYPE_CHECKING, Any, TypeAlias, Union

import keras
import tensorflow as tf

from t2t_keras.config import TrainConfig
from t2t_keras.errors import InputError
from t2t_keras.models.contract import SequenceModel
from t2t_keras.training.devices.strategy import is_tpu, make_strategy
from t2t_keras.training.devices.workers import Workers
from t2t_keras.training.step import TrainingStep

if TYPE_CHECKING:
    from t2t_keras.training.on_jax.jax_devices import JaxDevices
    from t2t_keras.training.on_jax.jax_step import JaxStep

Devices: TypeAlias = Union[tf.distribute.Strategy, "JaxDevices"]
Step: TypeAlias = Union[TrainingStep, "JaxStep"]


def is_on_jax() -> bool:
    """Returns whether Keras runs on JAX."""
    return keras.backend.backend() == "jax"


def make_devices(name: str = "auto", replicas: int = 0, cluster: str = "auto", model_parallel: int = 1) -> Devices:
    """Creates the devices of a training.

    Args:
        name: see `make_strategy`.
        replicas: see `make_strategy`.
        cluster: see `make_strategy`.
        model_parallel: number of devices that form one replica and share one copy of the weights, all in one process.

    Returns:
        A `tf.distribute.Strategy` on TensorFlow, `JaxDevices` on JAX.

    Raises:
        InputError: as `make_strategy`; `model_parallel` is less than 1, is more than 1 on TensorFlow, or does not
            divide the devices of a process; or the backend is neither TensorFlow nor JAX.
        WorkerLostError: the workers of the cluster do not meet.
    """
    if model_parallel < 1:
        raise InputError(f"--model_parallel must be at least 1, got {model_parallel}")
    if is_on_jax():
        from t2t_keras.training.on_jax.jax_workers import make_jax_devices

        return make_jax_devices(name, replicas, cluster, model_parallel)
    if model_parallel > 1:
        raise InputError(f"--model_parallel={model_parallel}: TensorFlow does not support this; set KERAS_BACKEND=jax")
    if (backend := keras.backend.backend()) != "tensorflow":
        raise InputError(
            f"KERAS_BACKEND={backend}: runs are trained on tensorflow or jax; on this backend, use Keras's fit"
        )
    return make_strategy(name, replicas, cluster)


def need_static_shapes(devices: Devices) -> bool:
    """Returns whether these devices require `train.static_shapes`, because XLA compiles a program for each shape."""
    return is_on_jax() or is_tpu(devices)


def devices_line(devices: Devices) -> str:
    """Describes the devices for a log line, such as "8 replicas on GPU (NVIDIA A100-SXM4-40GB)"."""
    count = devices.num_replicas_in_sync
    if is_on_jax():
        kind, size = devices.mesh.devices.flat[0].device_kind, devices.model_parallel
        sizes = f" of {size} devices each" if size > 1 else ""
        return f"{count} replica{'s' * (count > 1)}{sizes} on {kind}"
    strategy: Any = devices
    kind = tf.DeviceSpec.from_string(strategy.extended.worker_devices[0]).device_type
    if kind == "GPU":
        details = tf.config.experimental.get_device_details(tf.config.list_physical_devices("GPU")[0])
        kind += f" ({details.get('device_name', 'unknown')})"
    return f"{count} replica{'s' * (count > 1)} on {kind}"


def computed_with(model: Any) -> dict[str, str]:
    """Returns the backend, library versions and dtype policy, which affect a model's results besides its settings."""
    versions = {"tensorflow": tf.__version__, "keras": keras.__version__}
    if is_on_jax():
        import jax

        versions["jax"] = jax.__version__
    return {"backend": keras.backend.backend(), **versions, "dtype_policy": model.dtype_policy.name}


def in_host_memory() -> contextlib.AbstractContextManager[Any]:
    """Returns a context in which model variables are created in host memory, if JAX trains.

    `JaxStep` keeps its own copies of the weights on the devices. On TensorFlow the context does nothing.
    """
    if is_on_jax():
        from t2t_keras.training.on_jax import jax_devices

        return jax_devices.in_host_memory()
    return contextlib.nullcontext()


def make_workers(devices: Devices) -> Workers:
    """Returns the group of processes that train together on these devices."""
    if is_on_jax():
        from t2t_keras.training.on_jax.jax_workers import JaxWorkers

        return JaxWorkers(devices)
    return Workers(devices)


def make_step(model: SequenceModel, config: TrainConfig, devices: Devices) -> Step:
    """Creates the compiled training step of a model; raises the errors of `TrainingStep` or `JaxStep`."""
    if is_on_jax():
        from t2t_keras.training.on_jax.jax_step import JaxStep

        return JaxStep(model, config, devices)
    return TrainingStep(model, config, devices)

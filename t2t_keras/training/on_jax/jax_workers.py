"""The processes of JAX that train together, and how they find each other and their devices."""

import contextlib
import os
from collections.abc import Iterator, Sequence

import numpy as np

from t2t_keras.errors import InputError
from t2t_keras.training.devices.cluster import find_cluster
from t2t_keras.training.devices.workers import Workers
from t2t_keras.training.on_jax.jax_devices import JaxDevices, is_out_of_memory


class JaxWorkers(Workers):
    """The processes that JAX knows."""

    def __init__(self, devices: JaxDevices) -> None:
        import jax

        self.count, self.index = jax.process_count(), jax.process_index()
        self.is_chief = self.index == 0
        own = [place for place, each in enumerate(devices.mesh.devices) if each.process_index == self.index]
        self.replica_ids = range(own[0], own[-1] + 1)

    def sum(self, values: Sequence[int] | np.ndarray) -> np.ndarray:
        array = np.asarray(values, np.int64)
        if self.count == 1:
            return array
        from jax.experimental import multihost_utils

        # JAX has no 64-bit integers unless a whole program asks for them.
        halves = np.stack([array >> 31, array & (1 << 31) - 1]).astype(np.int32)
        high, low = np.asarray(multihost_utils.process_allgather(halves), np.int64).sum(axis=0)
        return (high << 31) + low

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        import jax

        try:
            yield
        except jax.errors.JaxRuntimeError as error:
            if self.count == 1 or is_out_of_memory(error):
                raise
            raise self.lost(str(error).partition("\n")[0]) from error


def make_jax_devices(name: str = "auto", replicas: int = 0, cluster: str = "auto") -> JaxDevices:
    """The devices of a training on JAX; call it before anything else of JAX. Arguments are those of `make_strategy`.

    Raises:
        InputError: a strategy that is TensorFlow's, more replicas than devices, or an environment that describes no
            cluster.
    """
    if name not in ("auto", "cpu"):
        raise InputError(f"--strategy={name} is TensorFlow's; valid on JAX: auto, all its devices, and cpu")
    if replicas < 0:
        raise InputError(f"--replicas must not be negative, got {replicas}")
    import jax
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")  # TensorFlow reads the data; memory is for JAX
    if name == "cpu":
        jax.config.update("jax_platforms", "cpu")
    workers = find_cluster(cluster)
    if replicas:
        with contextlib.suppress(RuntimeError):  # too late if JAX has started
            jax.config.update("jax_num_cpu_devices", replicas)
    if workers and len(workers.addresses) > 1:
        jax.distributed.initialize(workers.addresses[0], len(workers.addresses), workers.index)
    elif os.environ.get("TPU_WORKER_HOSTNAMES", "").count(","):  # several hosts of a TPU, which JAX finds itself
        jax.distributed.initialize()
    devices = sorted(jax.devices(), key=lambda each: (each.process_index, each.id))
    if replicas * jax.process_count() > len(devices):
        raise InputError(f"--replicas={replicas}, but JAX has {jax.local_device_count()} devices here")
    if replicas:
        counts = [[each for each in devices if each.process_index == i][:replicas] for i in range(jax.process_count())]
        devices = [each for own in counts for each in own]
    return JaxDevices(devices)

"""The devices that JAX trains on; this module does not import TensorFlow."""

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np

BATCH, MODEL = "batch", "model"  # axes of the device mesh


class JaxDevices:
    """The device mesh of all processes. A row is a replica, whose devices share one copy of the weights.

    Args:
        devices: all devices, ordered by process.
        model_parallel: number of devices per replica.

    Attributes:
        mesh: `jax.sharding.Mesh` of shape [replicas, model_parallel].
        num_replicas_in_sync: number of replicas.
    """

    def __init__(self, devices: Sequence[Any], model_parallel: int = 1) -> None:
        import jax

        rows = np.array(devices).reshape(-1, model_parallel)
        self.mesh = jax.sharding.Mesh(rows, (BATCH, MODEL))
        self.num_replicas_in_sync = len(rows)

    @property
    def model_parallel(self) -> int:
        return self.mesh.shape[MODEL]

    def replicas_of(self, process: int) -> range:
        replicas = [replica for replica, (first, *_) in enumerate(self.mesh.devices) if first.process_index == process]
        return range(replicas[0], replicas[-1] + 1)


def in_host_memory() -> contextlib.AbstractContextManager[Any]:
    """Returns a context in which JAX creates arrays in host memory unless they are placed explicitly.

    If JAX_PLATFORMS excludes the CPU, the context does nothing.
    """
    import jax

    try:
        return jax.default_device(jax.local_devices(backend="cpu")[0])
    except RuntimeError:  # JAX_PLATFORMS excludes the CPU
        return contextlib.nullcontext()


def is_out_of_memory(error: Exception) -> bool:
    """Returns whether an error is JAX's error for a device that is out of memory."""
    import jax

    return isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error)

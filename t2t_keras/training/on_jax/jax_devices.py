"""The devices that JAX trains on; imports no TensorFlow."""

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np

BATCH, MODEL = "batch", "model"  # the axes of the mesh of devices


class JaxDevices:
    """All devices of all processes, in rows: a row is a replica, whose devices share one copy of the weights.

    Attributes:
        mesh: [replicas, model_parallel].
        num_replicas_in_sync: number of rows.
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
        own = [replica for replica, (first, *_) in enumerate(self.mesh.devices) if first.process_index == process]
        return range(own[0], own[-1] + 1)


def in_host_memory() -> contextlib.AbstractContextManager[Any]:
    """Inside, what JAX makes is in the host's memory, unless it is placed; or on a device if the host is hidden."""
    import jax

    try:
        return jax.default_device(jax.local_devices(backend="cpu")[0])
    except RuntimeError:  # JAX_PLATFORMS names others only
        return contextlib.nullcontext()


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error is JAX's of a device without memory."""
    import jax

    return isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error)

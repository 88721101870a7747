"""The devices that JAX trains on; imports no TensorFlow."""

from collections.abc import Sequence
from typing import Any

import numpy as np

AXIS = "replica"  # of the mesh of devices


class JaxDevices:
    """All devices of all processes, each of which is a replica.

    Attributes:
        mesh: of one axis.
        num_replicas_in_sync: number of devices.
    """

    def __init__(self, devices: Sequence[Any]) -> None:
        import jax

        self.mesh = jax.sharding.Mesh(np.array(devices), (AXIS,))
        self.num_replicas_in_sync = len(devices)


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error is JAX's of a device without memory."""
    import jax

    return isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error)

"""The processes of JAX that train together, and how they find each other and their devices."""

import contextlib
import itertools
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence

import numpy as np

from t2t_keras.errors import InputError
from t2t_keras.training.devices.cluster import Cluster, WorkerLostError, find_cluster
from t2t_keras.training.devices.workers import Workers
from t2t_keras.training.on_jax.jax_devices import JaxDevices, is_out_of_memory

_PATIENCE, _SILENCE = 3600, 30  # seconds, as the workers of TensorFlow have them
# How errors begin that come again when the same is tried again, whatever the other processes do.
_OWN_FAULTS = ("INVALID_ARGUMENT", "UNIMPLEMENTED")


class JaxWorkers(Workers):
    """The processes that JAX knows."""

    def __init__(self, devices: JaxDevices) -> None:
        import jax

        self.count, self.index = jax.process_count(), jax.process_index()
        self.is_chief = self.index == 0
        self.replica_ids = devices.replicas_of(self.index)

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
            if self.count == 1 or is_out_of_memory(error) or str(error).startswith(_OWN_FAULTS):
                raise
            raise self.lost(str(error).partition("\n")[0]) from error


def make_jax_devices(
    name: str = "auto", replicas: int = 0, cluster: str = "auto", model_parallel: int = 1
) -> JaxDevices:
    """The devices of a training on JAX; call it before anything else of JAX. Arguments are those of `make_devices`.

    Raises:
        InputError: a strategy that is TensorFlow's, more replicas than devices, devices that do not make up whole
            replicas in each process, or an environment that describes no cluster.
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
    wanted = replicas * model_parallel  # in each process; 0: all
    if wanted:
        with contextlib.suppress(RuntimeError):  # too late if JAX has started
            jax.config.update("jax_num_cpu_devices", wanted)
    if workers and len(workers.addresses) > 1:
        _meet(workers)
    elif os.environ.get("TPU_WORKER_HOSTNAMES", "").count(","):  # several hosts of a TPU, which JAX finds itself
        jax.distributed.initialize()
    devices = sorted(jax.devices(), key=lambda each: (each.process_index, each.id))
    of_processes = [list(own) for _, own in itertools.groupby(devices, lambda each: each.process_index)]
    fewest = min(map(len, of_processes))
    if wanted > fewest:
        split = f" of --model_parallel={model_parallel} devices each" if model_parallel > 1 else ""
        raise InputError(f"--replicas={replicas}{split}, but JAX has {fewest} devices here")
    if not wanted and (odd := next((len(own) for own in of_processes if len(own) % model_parallel), 0)):
        raise InputError(
            f"--model_parallel={model_parallel} does not divide the devices that JAX has in each process, {odd}; "
            "--replicas=N takes N replicas of them, and makes as many of a processor as that needs"
        )
    return JaxDevices([each for own in of_processes for each in own[: wanted or None]], model_parallel)


def _meet(workers: Cluster) -> None:
    """Joins the other processes; says so if that takes long, and raises a `WorkerLostError` if it takes too long.

    JAX waits in C++, where no signal is heard, and ends the process when its own time is over: so it has more of it,
    and waits in another thread.
    """
    import jax

    errors: list[Exception] = []

    def join() -> None:
        arguments = workers.addresses[0], len(workers.addresses), workers.index
        try:
            jax.distributed.initialize(*arguments, initialization_timeout=10 * _PATIENCE)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=join, name="meet", daemon=True)
    thread.start()
    begun, is_silent = time.monotonic(), True
    others = f"all {len(workers.addresses)} at {workers.addresses[0]}"
    while thread.is_alive():
        thread.join(0.2)
        waited = time.monotonic() - begun
        if waited > _PATIENCE:
            raise WorkerLostError(f"worker {workers.index} did not meet {others} in {waited / 60:.0f} minutes")
        if waited > _SILENCE and is_silent:
            print(f"worker {workers.index} waits for {others}", file=sys.stderr, flush=True)
            is_silent = False
    if errors:
        raise errors[0]

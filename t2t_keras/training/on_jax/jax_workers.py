"""The JAX processes that train together: how they find each other and their devices."""

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Iterator, Sequence

import numpy as np

from t2t_keras.errors import InputError
from t2t_keras.machine.standard_error import tell
from t2t_keras.training.devices.cluster import Cluster, WorkerLostError, find_cluster
from t2t_keras.training.devices.rendezvous import PATIENCE, SILENCE
from t2t_keras.training.devices.workers import Workers
from t2t_keras.training.on_jax.jax_devices import JaxDevices, is_out_of_memory

# Prefixes of errors of this process, which would recur on a retry regardless of the other processes.
_LOCAL_ERRORS = ("INVALID_ARGUMENT", "UNIMPLEMENTED")


class JaxWorkers(Workers):
    """The `Workers` of JAX's distributed runtime."""

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

        # JAX has no 64-bit integers unless they are enabled for the whole program.
        halves = np.stack([array >> 31, array & (1 << 31) - 1]).astype(np.int32)
        high, low = np.asarray(multihost_utils.process_allgather(halves), np.int64).sum(axis=0)
        return (high << 31) + low

    @contextlib.contextmanager
    def raising_worker_lost(self) -> Iterator[None]:
        import jax

        try:
            yield
        except jax.errors.JaxRuntimeError as error:
            if self.count == 1 or is_out_of_memory(error) or str(error).startswith(_LOCAL_ERRORS):
                raise
            raise self.lost(str(error).partition("\n")[0]) from error


def make_jax_devices(
    name: str = "auto", replicas: int = 0, cluster: str = "auto", model_parallel: int = 1
) -> JaxDevices:
    """Creates the devices of a training on JAX; call it before any other use of JAX.

    Args:
        name: "auto" uses all of JAX's devices, "cpu" the CPU.
        replicas: number of replicas per process; 0 means as many as the devices allow.
        cluster: where to read the workers from; see `find_cluster`.
        model_parallel: number of devices per replica.

    Raises:
        InputError: `name` is a TensorFlow strategy, there are more replicas than devices, `model_parallel` does not
            divide the devices of a process, or the environment describes no cluster.
        WorkerLostError: the workers of the cluster do not meet.
    """
    if name not in ("auto", "cpu"):
        raise InputError(f"--strategy={name} needs TensorFlow; valid on JAX: auto (all devices), cpu")
    if replicas < 0:
        raise InputError(f"--replicas must not be negative, got {replicas}")
    import jax
    import tensorflow as tf

    with contextlib.suppress(RuntimeError):  # too late if TensorFlow has started
        tf.config.set_visible_devices([], "GPU")  # TensorFlow only reads the data, and must not take GPU memory
    if name == "cpu":
        jax.config.update("jax_platforms", "cpu")
    workers = find_cluster(cluster)
    num_devices = replicas * model_parallel  # devices in each process; 0 means all
    if num_devices:
        with contextlib.suppress(RuntimeError):  # too late if JAX has started
            jax.config.update("jax_num_cpu_devices", num_devices)
    if workers and len(workers.addresses) > 1:
        _meet(workers)
    elif os.environ.get("TPU_WORKER_HOSTNAMES", "").count(","):  # a TPU with several hosts, which JAX finds itself
        jax.distributed.initialize()
    devices = sorted(jax.devices(), key=lambda each: (each.process_index, each.id))
    process_devices = [list(group) for _, group in itertools.groupby(devices, lambda each: each.process_index)]
    fewest = min(map(len, process_devices))
    if num_devices > fewest:
        split = f" of --model_parallel={model_parallel} devices each" if model_parallel > 1 else ""
        raise InputError(f"--replicas={replicas}{split}, but JAX has {fewest} devices here")
    if not num_devices and (size := next((len(group) for group in process_devices if len(group) % model_parallel), 0)):
        raise InputError(
            f"--model_parallel={model_parallel} does not divide the devices that JAX has in each process, {size}; "
            "--replicas=N uses as many of them as N replicas need, and divides a CPU into as many"
        )
    return JaxDevices([each for group in process_devices for each in group[: num_devices or None]], model_parallel)


def _meet(workers: Cluster) -> None:
    """Joins the other processes; prints a line if that takes long.

    JAX waits in C++, where no signal is handled, and ends the process after its own timeout. It therefore waits in a
    separate thread, with a longer timeout than `PATIENCE`.

    Raises:
        WorkerLostError: the processes did not meet within `PATIENCE` seconds.
    """
    import jax

    errors: list[Exception] = []

    def join() -> None:
        arguments = workers.addresses[0], len(workers.addresses), workers.index
        try:
            jax.distributed.initialize(*arguments, initialization_timeout=10 * PATIENCE)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=join, name="meet", daemon=True)
    thread.start()
    start, is_silent = time.monotonic(), True
    target = f"all {len(workers.addresses)} at {workers.addresses[0]}"
    while thread.is_alive():
        thread.join(0.2)
        waited = time.monotonic() - start
        if waited > PATIENCE:
            raise WorkerLostError(f"worker {workers.index} did not meet {target} in {waited / 60:.0f} minutes")
        if waited > SILENCE and is_silent:
            tell(f"worker {workers.index} waits for {target}")
            is_silent = False
    if errors:
        raise errors[0]

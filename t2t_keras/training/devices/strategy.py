"""Creates a `tf.distribute.Strategy` by name."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.machine.streams import share_out_cores
from t2t_keras.training.devices.cluster import STRATEGIES, Cluster, WorkerLostError, find_cluster
from t2t_keras.training.devices.rendezvous import wait_for_all

# A single CPU computes the two halves of each batch in parallel, each on half of the cores: small operations are too
# short to use more threads, and the halves do not wait for each other.
_CPU_STREAMS = 2


def make_strategy(name: str = "auto", replicas: int = 0, cluster: str = "auto") -> tf.distribute.Strategy:
    """Creates the strategy for the devices of a training; call it before any other use of TensorFlow.

    With several workers, it returns only once all of them have started.

    Args:
        name: "auto" selects a TPU if TPU_NAME is set, else the workers of a cluster, else all GPUs, else the CPU. The
            other names are "cpu", "mirrored" (this machine's GPUs), "multiworker" and "tpu".
        replicas: number of replicas per worker: logical devices on a CPU, or the first GPUs. 0 means one per device.
        cluster: where to read the workers from; see `find_cluster`.

    Returns:
        The strategy.

    Raises:
        InputError: the name is unknown, there are more replicas than devices, or no cluster, GPU or TPU is found.
        ValueError: several replicas on a CPU are requested after TensorFlow has started.
        WorkerLostError: the workers of the cluster do not meet.
    """
    _check(name, replicas)
    if name == "auto" and os.environ.get("TPU_NAME"):
        name = "tpu"
    workers = _find_workers(name, cluster)
    if name == "tpu":
        if replicas:
            raise InputError(f"--replicas={replicas} is for CPUs and GPUs; a TPU has one replica per core")
        return _tpu_strategy()
    if name in ("auto", "multiworker"):
        if workers and len(workers.addresses) > 1:
            return _workers_strategy(workers, replicas)
        name = "auto"  # a single worker uses the devices of its machine
    if name == "cpu":
        with contextlib.suppress(RuntimeError):  # too late if TensorFlow has started
            tf.config.set_visible_devices([], "GPU")  # else the model would be created on a GPU
    # Listing logical devices initialises TensorFlow, after which a CPU can no longer be split into logical devices.
    has_gpus = name != "cpu" and bool(tf.config.list_physical_devices("GPU"))
    gpus = [device.name for device in tf.config.list_logical_devices("GPU")] if has_gpus else []
    _check_gpus(name, replicas, len(gpus))
    if gpus:
        return tf.distribute.MirroredStrategy(gpus[: replicas or len(gpus)])
    return _cpu_strategy(max(replicas, 1))


def _tpu_strategy() -> tf.distribute.Strategy:
    place = os.environ.get("TPU_NAME")
    if not place:
        raise InputError("--strategy=tpu needs TPU_NAME in the environment: a TPU's name, or local for this machine's")
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(place)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, OSError, tf.errors.OpError) as error:
        raise InputError(f"TPU_NAME={place}: no TPU can be reached: {' '.join(str(error).split())[:200]}") from error
    return tf.distribute.TPUStrategy(resolver)


def is_tpu(strategy: Any) -> bool:
    """Returns whether the replicas are on a TPU, which needs static shapes."""
    return isinstance(strategy, tf.distribute.TPUStrategy)


def distributed(strategy: tf.distribute.Strategy, dataset: tf.data.Dataset) -> Iterator[Any]:
    """Returns an iterator for `next_shares`. The dataset has one element per replica of this worker, consecutively.

    TensorFlow's distributed iterators prefetch with one autotuned pipeline per device, which can stall for a minute
    when it is destroyed. A few kilobytes of ids are copied to a device fast enough without prefetching.
    """
    if is_tpu(strategy):  # its host may be another machine
        return iter(strategy.distribute_datasets_from_function(lambda _: dataset))
    return iter(dataset)


def next_shares(strategy: tf.distribute.Strategy, elements: Any) -> Any:
    """Returns the next elements of an iterator from `distributed`, one for each replica; call it in a graph."""
    if is_tpu(strategy):
        return next(elements)
    # TensorFlow takes more than 32 calls of `next` in one graph for an unrolled loop and rejects them.
    return strategy.experimental_distribute_values_from_function(lambda _: elements.get_next_as_optional().get_value())


def num_streams(strategy: tf.distribute.Strategy) -> int:
    """Returns how many parts of a replica's share of a batch are computed in parallel: 2 on a single CPU, else 1."""
    return _CPU_STREAMS if isinstance(strategy, tf.distribute.OneDeviceStrategy) else 1


def _find_workers(name: str, cluster: str) -> Cluster | None:
    """Returns the cluster for a strategy of this name, or None."""
    if name in ("auto", "multiworker"):
        workers = find_cluster(cluster)
        if name == "multiworker" and workers is None:
            raise InputError("--strategy=multiworker found no cluster: no TF_CONFIG, SLURM step or Kubernetes Job")
        return workers
    if cluster != "auto":
        raise InputError(
            f"--cluster={cluster} names workers, but --strategy={name} has no workers; valid: auto, multiworker"
        )
    return None


def _check(name: str, replicas: int) -> None:
    if name not in STRATEGIES:
        raise InputError(f"unknown strategy {name!r}; valid: {', '.join(STRATEGIES)}")
    if replicas < 0:
        raise InputError(f"--replicas must not be negative, got {replicas}")


def _check_gpus(name: str, replicas: int, gpus: int) -> None:
    if name == "mirrored" and not gpus and not replicas:
        raise InputError("--strategy=mirrored found no GPU; to try it on a CPU, add --replicas=N")
    if gpus and replicas > gpus:
        raise InputError(f"--replicas={replicas}, but there are {gpus} GPUs")


def _workers_strategy(cluster: Cluster, replicas: int) -> tf.distribute.Strategy:
    """Creates a strategy with one replica per GPU of each worker, or per worker if it has no GPU."""
    gpus = len(tf.config.list_physical_devices("GPU"))
    if replicas > max(gpus, 1):
        raise InputError(f"--replicas={replicas}, but this worker has {gpus or 'no'} GPUs")
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": cluster.addresses}),
        task_type="worker",
        task_id=cluster.index,
        num_accelerators={"GPU": min(replicas or gpus, gpus)},
        rpc_layer="grpc",
    )
    wait_for_all(cluster)
    handler = signal.getsignal(signal.SIGTERM)
    try:
        strategy = tf.distribute.MultiWorkerMirroredStrategy(resolver)
        if threading.current_thread() is threading.main_thread():
            # TensorFlow has replaced it with one that only sets a flag. None means that it was not installed by Python.
            signal.signal(signal.SIGTERM, signal.SIG_DFL if handler is None else handler)
        return strategy
    except tf.errors.OpError as error:
        raise WorkerLostError(
            f"worker {cluster.index} did not meet the others ({', '.join(cluster.addresses)}): "
            f"{error.message.splitlines()[0][:200]}"
        ) from error


def _cpu_strategy(replicas: int) -> tf.distribute.Strategy:
    if replicas == 1:
        share_out_cores(_CPU_STREAMS)
        return tf.distribute.OneDeviceStrategy("/cpu:0")
    share_out_cores(replicas)  # otherwise each device would have one thread per core of the machine
    cpu = tf.config.list_physical_devices("CPU")[0]
    configurations = [tf.config.LogicalDeviceConfiguration()] * replicas
    if len(tf.config.get_logical_device_configuration(cpu) or []) < replicas:
        try:
            tf.config.set_logical_device_configuration(cpu, configurations)
        except RuntimeError as error:
            raise ValueError(
                f"make_strategy(replicas={replicas}) must run before TensorFlow is used: {error}"
            ) from None
    return tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(replicas)])

"""Finds the workers of a training in the environment: TF_CONFIG, SLURM or Kubernetes.

TensorFlow's own resolvers are not used. The one for SLURM sorts hosts as strings, which gives worker 10 the address of
worker 2, and fails on hosts without a GPU. The one for Kubernetes needs an extra package and access to the cluster's
API.
"""

import dataclasses
import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from t2t_keras.errors import InputError

NAMES = ("auto", "tf_config", "slurm", "kubernetes")
# Names that `make_strategy` accepts.
STRATEGIES = ("auto", "cpu", "mirrored", "multiworker", "tpu")

_SLURM = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE")
_KUBERNETES = ("JOB_COMPLETION_INDEX", "T2T_SERVICE", "T2T_WORKERS", "T2T_PORT")
_FIRST_PORT, _NUM_PORTS = 10_000, 20_000  # below the ephemeral ports of operating systems
_FEWEST_PORTS = 10  # of a job


class WorkerLostError(RuntimeError):
    """Another worker of the training was lost; restarting all workers resumes the training."""


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The workers of one training.

    Attributes:
        addresses: host:port of each worker; the first is the chief.
        index: index of this process in `addresses`.
    """

    addresses: tuple[str, ...]
    index: int


def find_cluster(name: str = "auto", environment: Mapping[str, str] = os.environ) -> Cluster | None:
    """Finds the cluster in which this process is a worker.

    Args:
        name: "tf_config" reads TF_CONFIG. "slurm" is a job step started by srun. "kubernetes" is a pod of an indexed
            Job that sets T2T_SERVICE, T2T_WORKERS and T2T_PORT, and T2T_PODS if the pods are not named after their
            service. "auto" takes the first of these whose variables are set.
        environment: environment variables.

    Returns:
        The cluster, or None if `name` is "auto" and the environment describes none.

    Raises:
        InputError: the name is unknown, or a variable is missing or invalid.
    """
    if name not in NAMES:
        raise InputError(f"unknown cluster {name!r}; valid: {', '.join(NAMES)}")
    if name == "auto":
        names = [candidate for candidate, variables in _VARIABLES.items() if all(environment.get(v) for v in variables)]
        if not names:
            return None
        name = names[0]
    missing = [variable for variable in _VARIABLES[name] if not environment.get(variable)]
    if missing:
        raise InputError(f"--cluster={name} needs {', '.join(missing)} in the environment")
    cluster = _READERS[name](environment)
    if not 0 <= cluster.index < len(cluster.addresses):
        raise InputError(
            f"--cluster={name} has {len(cluster.addresses)} workers, numbered from 0, but this process has the number "
            f"{cluster.index}"
        )
    return cluster


def _from_tf_config(environment: Mapping[str, str]) -> Cluster:
    text = environment["TF_CONFIG"]
    try:
        config = json.loads(text)
        jobs = {job: _addresses(addresses) for job, addresses in config.get("cluster", {}).items()}
        task = config.get("task", {"type": "worker", "index": 0})
        kind, index = task["type"], int(task["index"])
    except (ValueError, AttributeError, TypeError, KeyError) as error:
        raise InputError(f"the environment's TF_CONFIG={text!r} is not the JSON of a cluster: {error}") from None
    chief, workers = jobs.pop("chief", []), jobs.pop("worker", [])
    jobs.pop("evaluator", None)  # it does not train, but other programs may need it in TF_CONFIG
    if jobs or kind not in ("chief", "worker"):
        raise InputError(f"TF_CONFIG={text!r} names the job {', '.join(jobs) or kind}; valid jobs: chief, worker")
    if not chief and not workers:
        return Cluster(("localhost:0",), 0)  # TF_CONFIG of a single process
    return Cluster((*chief, *workers), index if kind == "chief" else len(chief) + index)


def _addresses(job: Sequence[Any] | Mapping[str, Any]) -> list[str]:
    """Reads the addresses of a job in TF_CONFIG: a list or, as in TensorFlow's `ClusterSpec`, {index: address}."""
    addresses = [job[str(index)] for index in range(len(job))] if isinstance(job, Mapping) else job
    return [str(address) for address in addresses]


def _from_slurm(environment: Mapping[str, str]) -> Cluster:
    rank = _number(environment, "SLURM_PROCID")
    hosts = expand_hosts(environment["SLURM_STEP_NODELIST"])
    counts = _tasks_per_node(environment["SLURM_STEP_TASKS_PER_NODE"])
    if len(counts) != len(hosts) or sum(counts) != _number(environment, "SLURM_STEP_NUM_TASKS"):
        values = ", ".join(f"{name}={environment[name]}" for name in _SLURM[1:])
        raise InputError(f"SLURM's variables are inconsistent: {values}")
    job = environment.get("SLURM_JOB_ID", "0")
    # A port for each task of a node, so that consecutive jobs, which may share a node, use different ports.
    num_ports = max(_FEWEST_PORTS, *counts)
    first = _FIRST_PORT + (int(job) if job.isdecimal() else 0) % (_NUM_PORTS // num_ports) * num_ports
    places = [(node, local) for node, count in enumerate(counts) for local in range(count)]
    actual = (environment.get("SLURM_NODEID"), environment.get("SLURM_LOCALID"))
    if None not in actual and rank < len(places) and actual != tuple(map(str, places[rank])):
        raise InputError(
            f"task {rank} runs as task {actual[1]} of node {actual[0]}: start it with srun --distribution=block"
        )
    return Cluster(tuple(f"{hosts[node]}:{first + local}" for node, local in places), rank)


def _from_kubernetes(environment: Mapping[str, str]) -> Cluster:
    """Reads a pod's variables. Pods are named JOB-INDEX.SERVICE; the job's name is T2T_PODS, or else the service's."""
    service, count = environment["T2T_SERVICE"], _number(environment, "T2T_WORKERS")
    pods, port = environment.get("T2T_PODS") or service, _number(environment, "T2T_PORT")
    addresses = tuple(f"{pods}-{index}.{service}:{port}" for index in range(count))
    return Cluster(addresses, _number(environment, "JOB_COMPLETION_INDEX"))


def expand_hosts(text: str) -> list[str]:
    """Expands SLURM's compact host list in order: "a[8-10,12],b" becomes a8, a9, a10, a12, b.

    Raises:
        InputError: the list is malformed.
    """
    hosts = []
    for name in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        names = [""]
        for plain, ranges in re.findall(r"([^\[\]]+)|\[([^\]]*)\]", name):
            endings = [plain] if plain else [n for part in ranges.split(",") for n in _numbers(part, text)]
            names = [host + ending for host in names for ending in endings]
        hosts += names
    if not hosts or any(re.search(r"[\[\]]", host) for host in hosts) or text.count("[") != text.count("]"):
        raise InputError(f"SLURM_STEP_NODELIST={text!r} is not a valid list of hosts")
    return hosts


def _numbers(part: str, text: str) -> list[str]:
    """Expands "3" or "08-10", keeping leading zeros."""
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
    if not match:
        raise InputError(f"SLURM_STEP_NODELIST={text!r} is not a valid list of hosts")
    first, last = match[1], match[2] or match[1]
    return [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]


def _tasks_per_node(text: str) -> list[int]:
    """Expands SLURM's compact task counts: "2(x3),1" becomes 2, 2, 2, 1."""
    counts: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if match is None:
            raise InputError(f"SLURM_STEP_TASKS_PER_NODE={text!r} is not a list of numbers")
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


def _number(environment: Mapping[str, str], name: str) -> int:
    try:
        return int(environment[name])
    except ValueError:
        raise InputError(f"the environment's {name}={environment[name]!r} is not a whole number") from None


_VARIABLES = {"tf_config": ("TF_CONFIG",), "slurm": _SLURM, "kubernetes": _KUBERNETES}
_READERS: dict[str, Any] = {"tf_config": _from_tf_config, "slurm": _from_slurm, "kubernetes": _from_kubernetes}

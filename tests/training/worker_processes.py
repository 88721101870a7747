"""Trainings in several processes of launch.train, which find each other on this machine."""

import contextlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from tests import programs

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]
PROGRAM = ("-m", "launch.train")
PATIENCE = 600  # seconds, for a busy machine to start and make some steps


def free_ports(count: int) -> list[int]:
    """Returns free ports."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def tf_config(count: int) -> list[dict[str, str]]:
    """Returns the environment of each worker on this machine."""
    cluster = {"worker": [f"127.0.0.1:{port}" for port in free_ports(count)]}
    tasks = [{"type": "worker", "index": index} for index in range(count)]
    return [{"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})} for task in tasks]


def slurm(count: int) -> list[dict[str, str]]:
    """Returns the environments of tasks of one Slurm node."""
    step = {
        "SLURM_STEP_NUM_TASKS": str(count),
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_STEP_TASKS_PER_NODE": str(count),
        "SLURM_JOB_ID": str(os.getpid()),  # determines the ports
        "SLURM_NODEID": "0",
    }
    return [{**step, "SLURM_PROCID": str(index), "SLURM_LOCALID": str(index)} for index in range(count)]


_APART = ["unshare", "--map-root-user", "--mount", "--net", "--pid", "--fork", "--kill-child"]


def has_pods() -> bool:
    """Whether `run_pods` can work here."""
    if not all(map(shutil.which, ("unshare", "nsenter", "ip"))):
        return False
    bridge = "mount -t tmpfs none /run && ip link add pods type bridge && ip netns add pod"
    return subprocess.run([*_APART, "bash", "-c", bridge], capture_output=True).returncode == 0


def run_pods(count: int, flags: list[str], folder: pathlib.Path) -> None:
    """Runs a training of several pods of a Kubernetes Job to its end; needs Linux namespaces and `ip`."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(ROOT)}
    environment |= {"T2T_SERVICE": "t2t", "T2T_WORKERS": str(count), "T2T_PORT": "2222"}
    command = [sys.executable, *PROGRAM, "--strategy=multiworker", "--cluster=kubernetes", *flags]
    done = subprocess.run(
        [*_APART, "bash", HERE / "pods.sh", "t2t", str(count), folder, *command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    logs = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("worker_*.log"))]
    assert done.returncode == 0, "\n".join([done.stderr, *logs])


class WorkerProcesses:
    """A training of several processes.

    Args:
        flags: the flags of launch.train for each worker.
        folder: the directory of their outputs.
        environments: the variables that describe the cluster to each worker; by default, those of `tf_config`.
        program: the program that each worker runs.
    """

    def __init__(
        self,
        flags: list[list[str]],
        folder: pathlib.Path,
        environments: list[dict[str, str]] | None = None,
        program: tuple[str, ...] = PROGRAM,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._logs = [folder / f"worker_{index}.log" for index in range(len(flags))]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TF_CONFIG", "SLURM_"))}
        self.processes = []
        for worker_flags, environment, log in zip(
            flags, environments or tf_config(len(flags)), self._logs, strict=True
        ):
            with open(log, "w", encoding="utf-8") as file:
                self.processes.append(
                    programs.Program(
                        [*program, "--strategy=multiworker", *worker_flags],
                        cwd=ROOT,
                        env={**inherited, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(ROOT), **environment},
                        stdout=subprocess.DEVNULL,
                        stderr=file,
                    )
                )

    def output(self, worker: int) -> str:
        """Returns the standard error of a worker."""
        return self._logs[worker].read_text(encoding="utf-8")

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Waits until the condition holds; all workers must live until then."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            ended = [index for index, process in enumerate(self.processes) if process.poll() is not None]
            if ended or time.monotonic() > deadline:
                raise AssertionError(f"workers {ended} ended early\n{self._outputs()}")
            time.sleep(0.01)

    def end(self, seconds: float = PATIENCE) -> list[int]:
        """Returns the exit statuses; a worker that takes longer than this is an error."""
        deadline = time.monotonic() + seconds
        try:
            return [process.wait(max(deadline - time.monotonic(), 0.1)) for process in self.processes]
        except subprocess.TimeoutExpired:
            raise AssertionError(f"a worker hangs\n{self._outputs()}") from None

    def kill(self) -> None:
        """Ends all processes."""
        for process in self.processes:
            process.kill()
            process.wait()

    def _outputs(self) -> str:
        return "\n".join(f"--- worker {index}\n{self.output(index)}" for index in range(len(self._logs)))


@contextlib.contextmanager
def running(*arguments: Any, **named: Any) -> Iterator[WorkerProcesses]:
    """`WorkerProcesses` that are ended with the context."""
    workers = WorkerProcesses(*arguments, **named)
    try:
        yield workers
    finally:
        workers.kill()

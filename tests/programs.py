"""Starts programs in forks of a process that has imported TensorFlow.

The import takes three to five seconds of CPU time, so one process per test session does it once. Each program that a
test starts is a fork of this process, with separate arguments, environment, folder, files and exit status. Variables
that Keras and TensorFlow read during the import (KERAS_BACKEND, TF_CPP_MIN_LOG_LEVEL) are the same in all forks, so
tests of these variables start Python directly, and so do tests that measure a process.

In quick mode, which `tests/conftest.py` sets, the programs skip the same steps as the tests.
"""

import atexit
import functools
import gc
import io
import multiprocessing
import os
import re
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from unittest import mock

import httpx

from t2t_keras.machine.files import replacing

ROOT = Path(__file__).parents[1]
# The first module imports TensorFlow without log messages, as the programs do.
IMPORTED = (
    "launch.quiet_tensorflow",
    "tensorflow_text",
    "keras",
    "sacrebleu",
    "t2t_keras.training.trainer",
    "t2t_keras.export.writing",
)
# Less optimization by XLA, which would take longer than the few steps of a test. At level 0, the gradient of a maximum
# over positions is NaN, because XLA compares the maximum with values that were rounded differently.
QUICK_COMPILATION = {"XLA_FLAGS": "--xla_backend_optimization_level=1 --xla_llvm_disable_expensive_passes=true"}

quick_mode = False


def set_quick_mode(quick_mode: bool) -> None:
    """Disables or enables slow steps of this process: optimizing graphs, and drawing curves."""
    if (tensorflow := sys.modules.get("tensorflow")) is not None:
        tensorflow.config.optimizer.set_experimental_options({"disable_meta_optimizer": quick_mode})
    if (monitor := sys.modules.get("t2t_keras.training.monitor")) is not None:
        _original.setdefault("draw", monitor._draw)
        monitor._draw = _write_empty_curves if quick_mode else _original["draw"]  # type: ignore[attr-defined]


_original: dict[str, Callable] = {}


def _write_empty_curves(records: list, path: Path, training_label: str) -> None:
    del training_label
    if records:
        with replacing(path, "wb") as file:
            file.write(b"<?xml")


@functools.cache
def _fork_context() -> multiprocessing.context.ForkServerContext:
    """The context that forks the processes; the first call starts the server."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(IMPORTED))
    # Import the package under test, even if another version is installed.
    with mock.patch.dict(os.environ, {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}):
        forkserver.ensure_running()
    return context


class Program(subprocess.Popen):
    """Like `subprocess.Popen([sys.executable, *arguments])`; the arguments start with -m, -c or a script."""

    def _execute_child(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *rest) -> None:
        """Called by `Popen`, which passes the ends of its pipes in places 3 to 8 of `rest`."""
        stdin, own_stdin, own_stdout, stdout, own_stderr, stderr = rest[3:9]
        ends = (stdin, stdout, stderr)
        files = [Connection(os.dup(number if end < 0 else end)) for number, end in enumerate(ends)]
        environment = {**(os.environ if env is None else env)}
        arguments = [os.fspath(argument) for argument in args]
        folder = os.path.abspath(cwd or ".")
        child_arguments = (arguments, environment, folder, preexec_fn, files, quick_mode)
        self._process = _fork_context().Process(target=_run_in_fork, args=child_arguments)
        self._process.start()
        self.pid, self._child_created = self._process.pid, True  # type: ignore[assignment]
        for file in files:
            file.close()
        devnull = getattr(self, "_devnull", None)
        for end, parent_end in ((stdin, own_stdin), (stdout, own_stdout), (stderr, own_stderr)):
            if -1 not in (end, parent_end) and end != devnull:
                os.close(end)
        if devnull is not None:
            os.close(devnull)

    def _internal_poll(self, *_args, **_kwargs) -> int | None:
        if self.returncode is None:
            self.returncode = self._process.exitcode
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        self._process.join(timeout)
        if self.poll() is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode


def run(
    arguments: Sequence[str | Path],
    *,
    input: str | bytes | None = None,
    capture_output: bool = False,
    check: bool = False,
    timeout: float = 600,
    **more,
) -> subprocess.CompletedProcess:
    """Like `subprocess.run([sys.executable, *arguments])`."""
    if capture_output:
        more |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if input is not None:
        more["stdin"] = subprocess.PIPE
    with Program(arguments, **more) as program:
        try:
            outputs = program.communicate(input, timeout)
        except BaseException:
            program.kill()
            raise
    completed = subprocess.CompletedProcess(arguments, program.returncode, *outputs)
    if check:
        completed.check_returncode()
    return completed


def run_cases(module: str, cases: Sequence[tuple[list[str], bytes]]) -> list[tuple[int, str, str]]:
    """Runs a program with arguments and standard input for each case; returns exit status, output and errors."""
    results = [run(["-m", module, *arguments], input=stdin, capture_output=True) for arguments, stdin in cases]
    return [(completed.returncode, completed.stdout.decode(), completed.stderr.decode()) for completed in results]


def assert_error(result: tuple[int, str, str], *words: str, beginning: str = "") -> None:
    """Checks that a program exited with status 1 and one line, an error with this beginning and these words."""
    status, output, errors = result
    assert (status, output) == (1, ""), errors
    assert errors.startswith(f"error: {beginning}") and errors.count("\n") == 1, errors
    assert all(word in errors for word in words), errors


def predict(export_dir: str | Path, *requests: dict) -> list[dict]:
    """Starts a server of an export, and returns the outputs of requests to predict."""
    command = ["-m", "launch.serve", f"--export_dir={export_dir}", "--rest_port=0", "--grpc_port=0"]
    with Program(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            (rest,) = re.findall(r"REST at (http://\S+),", server.stdout.readline())
            where = f"{rest}/v1/models/{Path(export_dir).name}:predict"
            responses = [httpx.post(where, json=request, timeout=300).json() for request in requests]
        finally:
            server.terminate()
    assert server.returncode == 0
    return [answer["outputs"] for answer in responses]


def _run_in_fork(
    arguments: list[str],
    environment: dict[str, str],
    folder: str,
    preexec_fn: Callable[[], object] | None,
    files: list[Connection],
    quick_mode: bool,
) -> None:
    """Runs the program in the fork as Python would."""
    gc.freeze()  # excludes the objects of the server from garbage collection
    for number, file in enumerate(files):
        os.dup2(file.fileno(), number)
        file.close()
    sys.stdin, sys.stdout, sys.stderr = (
        io.TextIOWrapper(os.fdopen(number, mode, closefd=False), encoding="utf-8", line_buffering=number == 2)
        for number, mode in enumerate(("rb", "wb", "wb"))
    )
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    if preexec_fn is not None:
        preexec_fn()
    set_quick_mode(quick_mode)
    first, *rest = arguments
    first_path = {"-m": folder, "-c": ""}.get(first, os.path.dirname(os.path.abspath(first)))
    python_path = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [first_path, *python_path, *sys.path]
    sys.argv = rest if first == "-m" else ["-c", *rest[1:]] if first == "-c" else arguments
    try:
        if first == "-m":
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        elif first == "-c":
            exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
        else:
            runpy.run_path(first, run_name="__main__")
    except KeyboardInterrupt:  # exit by the signal, like Python
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    finally:
        atexit._run_exitfuncs()

"""Processes that have TensorFlow when they begin.

Importing it takes three to five seconds of a core. One process of a test session does so once, and each program that a
test starts is a fork of it, with arguments, environment, folder, files and exit status of its own. What is decided when
Keras and TensorFlow are imported (KERAS_BACKEND, TF_CPP_MIN_LOG_LEVEL) is the same in all: a test of that starts Python
itself, and so does one of what a process costs.

Where `quickly` is true, which `tests/conftest.py` says, they are begun by `be_quick`.
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
# The first imports TensorFlow without its notices, as the programs do.
IMPORTED = (
    "launch.quiet_tensorflow",
    "tensorflow_text",
    "keras",
    "sacrebleu",
    "t2t_keras.training.trainer",
    "t2t_keras.export.writing",
)
# XLA would take longer to compile a test's few steps well than these take. At level 0 the gradient of a maximum over
# positions is NaN, because the maximum that it looks for was rounded in another way.
QUICKLY_COMPILED = {"XLA_FLAGS": "--xla_backend_optimization_level=1 --xla_llvm_disable_expensive_passes=true"}

quickly = False


def be_quick(quickly: bool) -> None:
    """Whether this process leaves out what takes longer than a test's few steps: to optimise graphs, to draw curves."""
    if (tensorflow := sys.modules.get("tensorflow")) is not None:
        tensorflow.config.optimizer.set_experimental_options({"disable_meta_optimizer": quickly})
    if (monitor := sys.modules.get("t2t_keras.training.monitor")) is not None:
        _drawing.setdefault("as in use", monitor._draw)
        monitor._draw = _not_drawn if quickly else _drawing["as in use"]  # type: ignore[attr-defined]


_drawing: dict[str, Callable] = {}


def _not_drawn(records: list, path: Path, training_label: str) -> None:
    del training_label
    if records:
        with replacing(path, "wb") as file:
            file.write(b"<?xml")


@functools.cache
def _forks() -> multiprocessing.context.ForkServerContext:
    """What makes the forks; the process that they are forks of is started at the first call."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(IMPORTED))
    # The package that is tested, wherever another one may be installed.
    with mock.patch.dict(os.environ, {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}):
        forkserver.ensure_running()
    return context


class Program(subprocess.Popen):
    """Like `subprocess.Popen([sys.executable, *arguments])`; the arguments begin with -m, -c or a script."""

    def _execute_child(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *rest) -> None:
        """Called by `Popen`, which has made the pipes: `rest` has their ends at places 3 to 8."""
        stdin, own_stdin, own_stdout, stdout, own_stderr, stderr = rest[3:9]
        ends = (stdin, stdout, stderr)
        files = [Connection(os.dup(number if end < 0 else end)) for number, end in enumerate(ends)]
        environment = {**(os.environ if env is None else env)}
        arguments = [os.fspath(argument) for argument in args]
        folder = os.path.abspath(cwd or ".")
        given = (arguments, environment, folder, preexec_fn, files, quickly)
        self._process = _forks().Process(target=_become, args=given)
        self._process.start()
        self.pid, self._child_created = self._process.pid, True  # type: ignore[assignment]
        for file in files:
            file.close()
        devnull = getattr(self, "_devnull", None)
        for end, own in ((stdin, own_stdin), (stdout, own_stdout), (stderr, own_stderr)):
            if -1 not in (end, own) and end != devnull:
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
    done = subprocess.CompletedProcess(arguments, program.returncode, *outputs)
    if check:
        done.check_returncode()
    return done


def run_cases(module: str, cases: Sequence[tuple[list[str], bytes]]) -> list[tuple[int, str, str]]:
    """What each call of a program did, given arguments and standard input: exit status, standard output and error."""
    results = [run(["-m", module, *arguments], input=stdin, capture_output=True) for arguments, stdin in cases]
    return [(done.returncode, done.stdout.decode(), done.stderr.decode()) for done in results]


def assert_refused(result: tuple[int, str, str], *words: str, beginning: str = "") -> None:
    """A program has ended with status 1 and one line, an error that begins like this and has these words."""
    status, output, errors = result
    assert (status, output) == (1, ""), errors
    assert errors.startswith(f"error: {beginning}") and errors.count("\n") == 1, errors
    assert all(word in errors for word in words), errors


def answers(export_dir: str | Path, *requests: dict) -> list[dict]:
    """The outputs with which a server of an export answers requests to predict; it must end well."""
    command = ["-m", "launch.serve", f"--export_dir={export_dir}", "--rest_port=0", "--grpc_port=0"]
    with Program(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            (rest,) = re.findall(r"REST at (http://\S+),", server.stdout.readline())
            where = f"{rest}/v1/models/{Path(export_dir).name}:predict"
            found = [httpx.post(where, json=request, timeout=300).json() for request in requests]
        finally:
            server.terminate()
    assert server.returncode == 0
    return [answer["outputs"] for answer in found]


def _become(
    arguments: list[str],
    environment: dict[str, str],
    folder: str,
    preexec_fn: Callable[[], object] | None,
    files: list[Connection],
    quickly: bool,
) -> None:
    """In the fork: runs the program as Python would."""
    gc.freeze()  # what it shares with all others need not be searched for garbage
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
    be_quick(quickly)
    first, *rest = arguments
    beside = {"-m": folder, "-c": ""}.get(first, os.path.dirname(os.path.abspath(first)))
    asked = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [beside, *asked, *sys.path]
    sys.argv = rest if first == "-m" else ["-c", *rest[1:]] if first == "-c" else arguments
    try:
        if first == "-m":
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        elif first == "-c":
            exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
        else:
            runpy.run_path(first, run_name="__main__")
    except KeyboardInterrupt:  # as Python ends by it
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    finally:
        atexit._run_exitfuncs()

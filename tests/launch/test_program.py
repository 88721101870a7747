"""The features that all programs share, tested with an example program."""

import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = '''"""Does what it is told.

Example:
    python -m example --number=3
"""

import gc
import os
import signal
import sys
import time

from launch import program
from launch.flag_types import ANY, NEW_FOLDER, DEFINE_number, DEFINE_path

from absl import flags

from t2t_keras.errors import AwayError, InputError
from t2t_keras.machine.files import replacing

_NUMBER = DEFINE_number("number", 1, "How many.", int)
DEFINE_path("model_dir", "runs/one", "A folder.", NEW_FOLDER)
DEFINE_path("checkpoints", None, "Names or paths.", ANY, is_list=True)
flags.DEFINE_string("text", "http://text", "Not a path.")


def main(argv):
    assert argv[1:] == []
    if _NUMBER.value == 2:
        raise InputError("--number=2 is too many; valid: 1")
    if _NUMBER.value == 3:
        open("/there is/no such file")
    if _NUMBER.value == 4:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore SIGINT
        os.kill(os.getpid(), signal.SIGINT)
    if _NUMBER.value == 8:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        gc.callbacks.append(lambda phase, info: gc.callbacks.clear() or os.kill(os.getpid(), signal.SIGINT))
        gc.collect()
        time.sleep(60)
    if _NUMBER.value == 9:
        gc.callbacks.append(lambda phase, info: gc.callbacks.clear() or 1 / 0)
        gc.collect()
    if _NUMBER.value == 5:
        raise RuntimeError("a mistake of the program")
    if _NUMBER.value == 6:
        for _ in range(100_000):
            print("a line")
    if _NUMBER.value == 7:
        sys.exit(143)
    if _NUMBER.value == 10:
        for _ in range(100_000):
            program.say("a line")
        program.warn("all is done")
    if _NUMBER.value == 11:
        reader, writer = os.pipe()
        os.close(reader)
        os.write(writer, b"to nobody")
    if _NUMBER.value == 12:
        with replacing(os.environ["MADE"]):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
    if _NUMBER.value == 13:
        program.warn("to nobody")
    if _NUMBER.value == 15:
        program.refuse_replacing(os.environ["MADE"], "/dev/stdin")
    if _NUMBER.value == 16:
        raise AwayError("s3://mine: does not answer")
    if _NUMBER.value == 14:
        assert sys.stdin.read() == "" and os.open(os.devnull, os.O_RDONLY) > 2
    print("number", _NUMBER.value, os.environ["TF_CPP_MIN_LOG_LEVEL"])


if __name__ == "__main__":
    program.run(main)
'''

URL = "is not a path of this machine's file system; mount the bucket, or copy its contents"


@pytest.fixture(scope="module")
def run_example(tmp_path_factory):
    """Runs the program, optionally with a pipe or redirections."""
    folder = tmp_path_factory.mktemp("program")
    (folder / "example.py").write_text(PROGRAM, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"}
    environment.pop("TF_CPP_MIN_LOG_LEVEL", None)

    def run(*arguments: str, pipe: str = "", streams: str = "", **variables: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "example", *arguments]
        if streams:
            command = ["bash", "-c", f"exec {shlex.join(command)} {streams}"]
        if pipe:
            command = ["bash", "-c", f"{shlex.join(command)} | {pipe}; echo ${{PIPESTATUS[0]}}"]
        return subprocess.run(command, env=environment | variables, capture_output=True, text=True, check=False)

    return run


def test_output_of_a_successful_program(run_example):
    result = run_example()
    assert (result.returncode, result.stdout, result.stderr) == (0, "number 1 2\n", "")


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--number=2"], "error: --number=2 is too many; valid: 1\n"),
        (["--number=3"], "error: [Errno 2] No such file or directory: '/there is/no such file'\n"),
        (["--model_dir=gs://mine/run"], f"error: --model_dir=gs://mine/run {URL}\n"),
        (["--model_dir=/dev/null"], "error: --model_dir=/dev/null is a file; give a folder\n"),
        (["--checkpoints=10,s3://mine/step"], f"error: --checkpoints=s3://mine/step {URL}\n"),
        (["--number=1", "two"], "error: unexpected argument 'two'; every setting is a flag, see --help\n"),
    ],
)
def test_errors(run_example, arguments, message):
    result = run_example(*arguments)
    assert (result.returncode, result.stdout, result.stderr) == (1, "", message)


def test_exit_status_of_unreachable_storage(run_example):
    result = run_example("--number=16")
    assert (result.returncode, result.stdout, result.stderr) == (69, "", "error: s3://mine: does not answer\n")


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--numbr=2"], "Unknown command line flag 'numbr'. Did you mean: number; see --help"),
        (["--number=many"], "--number must be a whole number, got 'many'; see --help"),
        (["--version=two"], "--version=two: neither true nor false; see --help"),
        (["--model_dir"], "Missing value for flag --model_dir; see --help"),
    ],
)
def test_invalid_flags(run_example, arguments, message):
    result = run_example(*arguments)
    assert (result.returncode, result.stdout, result.stderr) == (1, "", f"error: {message}\n")


def test_missing_flags():
    code = "from absl import flags; from launch import program; import sys\n"
    code += "for name in ('data_dir', 'model_dir'): flags.DEFINE_string(name, None, '', required=True)\n"
    code += "program.run(lambda argv: None)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (result.returncode, result.stderr) == (1, "error: --data_dir and --model_dir must be given; see --help\n")
    command = [sys.executable, "-c", code, "--data_dir=data", "--model_dir="]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (result.returncode, result.stderr) == (1, "error: --model_dir must not be empty\n")


def test_interrupt(run_example):
    result = run_example("--number=4")
    assert (result.returncode, result.stderr) == (128 + signal.SIGINT, "interrupted\n")


def test_interrupt_in_a_callback_whose_errors_are_ignored(run_example):
    """JAX registers a callback that runs after each garbage collection."""
    result = run_example("--number=8")
    assert (result.returncode, result.stderr) == (128 + signal.SIGINT, "interrupted\n")
    other = run_example("--number=9")
    assert other.returncode == 0 and "ZeroDivisionError" in other.stderr


def test_bugs_show_a_traceback(run_example):
    result = run_example("--number=5")
    assert result.returncode != 0
    assert "Traceback" in result.stderr and "a mistake of the program" in result.stderr


def test_exit_status_of_main(run_example):
    assert run_example("--number=7").returncode == 143


def test_closed_pipes(run_example):
    result = run_example("--number=6", pipe="head -1")
    assert (result.stdout, result.stderr) == ("a line\n0\n", "")
    result = run_example("--help", pipe="true")
    assert (result.stdout, result.stderr) == ("0\n", "")
    result = run_example("--number=10", pipe="head -1")
    assert (result.stdout, result.stderr) == ("a line\n0\n", "all is done\n"), "the program finishes its work"
    result = run_example("--number=11")
    assert (result.returncode, result.stderr) == (1, "error: [Errno 32] Broken pipe\n"), "a pipe other than its output"


@pytest.mark.parametrize("arguments", [[], ["--help"], ["--helpfull"], ["--version"], ["--number=6"]])
def test_full_device(run_example, arguments):
    result = run_example(*arguments, streams="> /dev/full")
    assert (result.returncode, result.stderr) == (1, "error: [Errno 28] No space left on device\n")


@pytest.mark.parametrize("streams", ["<&-", "<&- >&-", "<&- >&- 2>&-", "< /dev/null 2>&-"])
def test_closed_standard_streams(run_example, streams):
    assert run_example("--number=14", streams=streams).returncode == 0


def test_signals_leave_no_partial_files(run_example, tmp_path):
    result = run_example("--number=12", MADE=str(tmp_path / "made"))
    assert (result.returncode, result.stdout, result.stderr) == (128 + signal.SIGTERM, "", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help(run_example, flag):
    result = run_example("--number=many", flag)  # despite the invalid flag
    assert "Does what it is told." in result.stdout and "How many." in result.stdout
    assert len(result.stdout.splitlines()) < 30
    assert (result.returncode, result.stderr) == (0, "")


def test_version(run_example):
    result = run_example("--version")
    assert re.fullmatch(
        r"t2t_keras \d+\.\d+\.\d+ \(.*tensorflow-text 2\.\d+\.\d+, keras 3\.[\d.]+, Python 3\.[\d.]+\)\n", result.stdout
    )
    assert (result.returncode, result.stderr) == (0, "")

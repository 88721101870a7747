"""What every program has in common, on a program of the test's own."""

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
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
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
def call(tmp_path_factory):
    """Calls the program with some arguments, alone or in front of a pipe's other end."""
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


def test_it_runs_quietly(call):
    done = call()
    assert (done.returncode, done.stdout, done.stderr) == (0, "number 1 2\n", "")


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
def test_bad_input_is_one_line(call, arguments, message):
    done = call(*arguments)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", message)


def test_what_does_not_answer_has_a_status_of_its_own(call):
    done = call("--number=16")
    assert (done.returncode, done.stdout, done.stderr) == (69, "", "error: s3://mine: does not answer\n")


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--numbr=2"], "Unknown command line flag 'numbr'. Did you mean: number; see --help"),
        (["--number=many"], "--number must be a whole number, got 'many'; see --help"),
        (["--version=two"], "--version=two: neither true nor false; see --help"),
        (["--model_dir"], "Missing value for flag --model_dir; see --help"),
    ],
)
def test_bad_flags_are_one_line(call, arguments, message):
    done = call(*arguments)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"error: {message}\n")


def test_flags_that_are_missing_are_named():
    code = "from absl import flags; from launch import program; import sys\n"
    code += "for name in ('data_dir', 'model_dir'): flags.DEFINE_string(name, None, '', required=True)\n"
    code += "program.run(lambda argv: None)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr) == (1, "error: --data_dir and --model_dir must be given; see --help\n")
    command = [sys.executable, "-c", code, "--data_dir=data", "--model_dir="]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr) == (1, "error: --model_dir must not be empty\n")


def test_an_interrupt(call):
    done = call("--number=4")
    assert (done.returncode, done.stderr) == (128 + signal.SIGINT, "interrupted\n")


def test_an_interrupt_where_python_ignores_errors(call):
    """As in what JAX calls after each collection of garbage."""
    done = call("--number=8")
    assert (done.returncode, done.stderr) == (128 + signal.SIGINT, "interrupted\n")
    other = call("--number=9")
    assert other.returncode == 0 and "ZeroDivisionError" in other.stderr


def test_a_mistake_of_the_program_is_not_hidden(call):
    done = call("--number=5")
    assert done.returncode != 0
    assert "Traceback" in done.stderr and "a mistake of the program" in done.stderr


def test_the_exit_status_of_main_counts(call):
    assert call("--number=7").returncode == 143


def test_a_reader_that_has_enough(call):
    done = call("--number=6", pipe="head -1")
    assert (done.stdout, done.stderr) == ("a line\n0\n", "")
    done = call("--help", pipe="true")
    assert (done.stdout, done.stderr) == ("0\n", "")
    done = call("--number=10", pipe="head -1")
    assert (done.stdout, done.stderr) == ("a line\n0\n", "all is done\n"), "what it is for is done all the same"
    done = call("--number=11")
    assert (done.returncode, done.stderr) == (1, "error: [Errno 32] Broken pipe\n"), "not that of its output"


@pytest.mark.parametrize("arguments", [[], ["--help"], ["--helpfull"], ["--version"], ["--number=6"]])
def test_no_room_for_the_output_is_an_error(call, arguments):
    done = call(*arguments, streams="> /dev/full")
    assert (done.returncode, done.stderr) == (1, "error: [Errno 28] No space left on device\n")


def test_no_room_for_warnings_is_none(call):
    done = call("--number=13", streams="2> /dev/full")
    assert (done.returncode, done.stdout) == (0, "number 13 2\n")


@pytest.mark.parametrize("streams", ["<&-", "<&- >&-", "<&- >&- 2>&-", "< /dev/null 2>&-"])
def test_closed_streams_are_as_good_as_empty(call, streams):
    assert call("--number=14", streams=streams).returncode == 0


def test_what_is_read_as_standard_input_is_not_replaced(call, tmp_path):
    (tmp_path / "in").write_text("text", encoding="utf-8")
    done = call("--number=15", streams=f"< {tmp_path / 'in'}", MADE=str(tmp_path / "in"))
    assert done.returncode == 1 and "is also the input, which would be lost" in done.stderr
    assert call("--number=15", streams="< /dev/null", MADE=os.devnull).returncode == 0


def test_a_signal_leaves_nothing_half_written(call, tmp_path):
    done = call("--number=12", MADE=str(tmp_path / "made"))
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGTERM, "", "")
    assert list(tmp_path.iterdir()) == []


def test_names_that_are_no_utf8_are_refused(call):
    done = call(os.fsdecode(b"--model_dir=b\xff/run"))
    assert done.returncode == 1 and done.stderr.startswith("error: --model_dir: 'b\\udcff/run' is not valid UTF-8")


def test_a_file_of_flags_that_is_no_utf8(call, tmp_path):
    (tmp_path / "flags").write_bytes(b"--text=\xff")
    done = call(f"--flagfile={tmp_path / 'flags'}")
    assert (done.returncode, done.stderr) == (1, "error: --flagfile: not valid UTF-8: invalid start byte at byte 7\n")


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_is_the_programs_own(call, flag):
    done = call("--number=many", flag)  # whatever else is there
    assert "Does what it is told." in done.stdout and "How many." in done.stdout
    assert len(done.stdout.splitlines()) < 30
    assert (done.returncode, done.stderr) == (0, "")


def test_version(call):
    done = call("--version")
    assert re.fullmatch(
        r"t2t_keras \d+\.\d+\.\d+ \(.*tensorflow-text 2\.\d+\.\d+, keras 3\.[\d.]+, Python 3\.[\d.]+\)\n", done.stdout
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_flagfile(call, tmp_path):
    (tmp_path / "flags").write_text("# a comment\n--number=2\n", encoding="utf-8")
    assert call(f"--flagfile={tmp_path / 'flags'}").stderr == "error: --number=2 is too many; valid: 1\n"


@pytest.mark.integration
@pytest.mark.parametrize("program", ["-m launch.convert", "launch/cluster/serving/client_grpc.py"])
def test_help_comes_without_notices(program):
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    command = [sys.executable, *program.split(), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    assert (done.returncode, done.stderr) == (0, "") and "--model" in done.stdout


@pytest.mark.integration
def test_tensorflow_is_imported_quietly_and_other_lines_are_not_kept_from_standard_error():
    code = (
        "import os\nfrom launch import program, quiet_tensorflow\n"
        "import tensorflow as tf\nprint(int(tf.constant(1) + 1))\n"
        "with quiet_tensorflow.without_notices():\n"
        "    os.write(2, b'I0000 oneDNN custom operations are on.\\nCannot dlopen some GPU libraries.\\n')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "2\n", "Cannot dlopen some GPU libraries.\n")

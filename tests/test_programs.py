"""What starts the programs of tests: its forks end, read and write as processes of Python do."""

import os
import signal
import subprocess
import sys

import pytest

from tests import programs


def both(code: str, **more) -> list[tuple]:
    """What a fork and a Python of its own make of some code: exit status, standard output, standard error."""
    found = []
    for run, command in ((programs.run, []), (subprocess.run, [sys.executable])):
        done = run([*command, "-c", code, "argument"], capture_output=True, text=True, **more)
        found.append((done.returncode, done.stdout, done.stderr))
    return found


@pytest.mark.parametrize(
    "code",
    [
        "import sys; print(sys.argv, sys.stdin.read()); sys.exit(7)",
        "import sys; sys.exit('a message')",
        "import os; print(os.getcwd(), os.environ['OF_THE_TEST'], flush=True); os.write(2, b'x')",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "import atexit; atexit.register(print, 'the end')",
    ],
)
def test_a_fork_does_what_python_does(code, tmp_path):
    fork, python = both(code, input="ä line", cwd=tmp_path, env={**os.environ, "OF_THE_TEST": "1"})
    assert fork == python


def test_an_error_is_a_traceback_and_status_1():
    (status, _, error), _ = both("raise ValueError('here')")
    assert status == 1 and error.endswith("ValueError: here\n")


def test_signals_and_patience():
    waiting = ["-c", "import time; print('begun', flush=True); time.sleep(600)"]
    for number in (signal.SIGTERM, signal.SIGINT):
        with programs.Program(waiting, stdout=subprocess.PIPE, text=True) as program:
            assert program.stdout.readline() == "begun\n" and program.poll() is None
            program.send_signal(number)
            assert program.wait(300) == -number
    with pytest.raises(subprocess.TimeoutExpired):
        programs.run(waiting, stdout=subprocess.DEVNULL, timeout=0.1)


def test_it_has_tensorflow_when_it_begins_and_the_package_under_test():
    done = programs.run(
        ["-c", "import sys, t2t_keras; print('tensorflow' in sys.modules, t2t_keras.__file__)"],
        capture_output=True,
        text=True,
        cwd="/",
    )
    assert done.stdout == f"True {programs.ROOT / 't2t_keras' / '__init__.py'}\n"

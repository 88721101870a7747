"""Jobs in processes: few at a time, with errors passed to the caller, and without orphaned children."""

import contextlib
import itertools
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from t2t_keras.errors import InputError
from t2t_keras.machine.processes import ProcessDiedError, Processes, call_in_process
from tests.waiting import wait_until

ROOT = pathlib.Path(__file__).parents[2]
PATIENCE = 600  # seconds, for a busy machine

# A parent with two children that never end by themselves.
PARENT = """
import itertools, sys
from tests.machine.test_processes import announce_and_wait
from t2t_keras.machine.processes import Processes

if __name__ == "__main__":
    for _ in Processes(2).run(announce_and_wait, ((number, sys.argv[1]) for number in itertools.count())):
        pass
"""


def square(number, argument):
    return os.getpid(), number * argument


def fail(number, argument):
    if number == argument:
        raise InputError(f"job {number}")
    return number


def die_of(number):
    os.kill(os.getpid(), number)


def announce_and_wait(number, folder):
    (pathlib.Path(folder) / f"{os.getpid()}").touch()
    time.sleep(PATIENCE)


@pytest.mark.parametrize(("jobs", "processes"), [(0, 2), (1, 2), (5, 1)])
def test_few_jobs_start_no_processes(jobs, processes):
    results = list(Processes(processes).run(square, [(number, 3) for number in range(jobs)]))
    assert results == [(number, (os.getpid(), number * 3)) for number in range(jobs)]


def test_jobs_are_distributed_and_generated_on_demand():
    numbers = itertools.count()
    jobs = ((number, 7) for number in itertools.takewhile(lambda number: number < 20, numbers))
    results = {}
    with contextlib.closing(Processes(2).run(square, jobs)) as finished:
        for number, (process, result) in finished:
            assert process != os.getpid()
            results[number] = result
            if len(results) == 1:
                assert next(numbers) <= 5  # skips this number
                num_before_skip = len(results)
    assert num_before_skip and len(results) == 19
    assert all(result == number * 7 for number, result in results.items())


def test_an_error_in_a_process_reaches_the_caller():
    with pytest.raises(InputError, match="^job 1$"):
        list(Processes(2).run(fail, [(number, 1) for number in range(9)]))


def test_an_error_while_generating_jobs_reaches_the_caller():
    def jobs():
        yield from ((number, -1) for number in range(4))
        raise InputError("line 5")

    with pytest.raises(InputError, match="line 5"):
        list(Processes(2).run(fail, jobs()))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_children_end_with_their_parent(tmp_path, number):
    command = [sys.executable, "-c", PARENT, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE) as parent:
        wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
        parent.send_signal(number)
        try:
            assert parent.wait(PATIENCE) == -number
        finally:
            parent.kill()
    children = [int(path.name) for path in tmp_path.iterdir()]
    wait_until(lambda: not any(map(is_alive, children)))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT])
def test_call_apart_reports_a_process_that_dies(number):
    with pytest.raises(ProcessDiedError, match=f"ended with -{number}") as error:
        call_in_process(die_of, number)
    assert error.value.exit_code == -number


def is_alive(process):
    try:
        state = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"

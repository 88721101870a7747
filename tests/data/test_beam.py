"""Preparation on Apache Beam with its direct runner on this machine."""

import os
import signal

import pytest

from t2t_keras.data.journal import Journal
from t2t_keras.data.prepare import prepare
from t2t_keras.data.sources import parallel_files
from t2t_keras.errors import InputError
from t2t_keras.machine import beam_workers
from t2t_keras.machine.beam_workers import BeamWorkers
from tests import programs
from tests.data.small_corpora import CONFIG, assert_same_folder, random_pairs, write_corpus

pytest.importorskip("apache_beam", reason="needs the extra beam")
pytestmark = pytest.mark.integration

FOUR_WORKERS = ("direct_num_workers=4", "direct_running_mode=multi_processing")

# Prepares files on four workers. When three shards are cleaned, it kills one worker and then its own process.
KILLED = """
import os, pathlib, signal, sys
from t2t_keras.data.journal import Journal
from t2t_keras.data.prepare import prepare
from t2t_keras.data.sources import corpora
from t2t_keras.machine.beam_workers import BeamWorkers
from tests.data.small_corpora import CONFIG
from tests.data.test_beam import FOUR_WORKERS, children

folder = pathlib.Path(sys.argv[1])
add, cleaned = Journal.add, []

def add_and_die(journal, name, result):
    add(journal, name, result)
    cleaned.extend([name] * name.startswith("cleaning"))
    if len(cleaned) == 3:
        os.kill(children()[0], signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

Journal.add = add_and_die
corpus = corpora.files({"train": (folder / "train.en", folder / "train.de")})
prepare(corpus, CONFIG, folder / "data", print, BeamWorkers(folder / "data", "direct", FOUR_WORKERS), 20)
"""


def children():
    """Returns the ids of the child processes."""
    stats = []
    for number in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{number}/stat") as file:
                stats.append((int(number), int(file.read().rpartition(")")[2].split()[1])))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return [number for number, parent in stats if parent == os.getpid()]


def square(number, argument):
    if number == argument:
        raise InputError(f"job {number}")
    return {"square": number * number}


def divide(number, argument):
    return number / argument


def move_jobs(number, folder):
    """Moves the directory of the jobs, as if the workers could not see it."""
    for jobs in folder.glob(".jobs*"):
        jobs.rename(folder / "elsewhere")
    return number


def test_one_worker_and_four_write_the_same_bytes_as_processes(tmp_path, monkeypatch):
    monkeypatch.setattr(parallel_files, "_BLOCK_BYTES", 2000)
    monkeypatch.setattr(parallel_files, "_COUNTED_BYTES", 8000)
    pairs = random_pairs(400, 1)
    corpus = write_corpus(tmp_path, train=[*pairs, *pairs[::7]], test=random_pairs(10, 3))
    prepare(corpus, CONFIG, tmp_path / "processes", print, shard_pairs=60)
    for name, options in (("one", ()), ("four", FOUR_WORKERS)):
        workers = BeamWorkers(tmp_path / name, "direct", options)
        prepare(corpus, CONFIG, tmp_path / name, print, workers, shard_pairs=60)
        assert_same_folder(tmp_path / "processes", tmp_path / name)
        assert [path.name for path in (tmp_path / name).glob(".jobs*")] == []


def test_preparation_resumes_after_a_worker_and_the_program_were_killed(tmp_path, monkeypatch):
    corpus = write_corpus(tmp_path, train=random_pairs(300, 1))
    done = programs.run(["-c", KILLED, tmp_path], capture_output=True, cwd=programs.ROOT)  # until no worker is left
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert list((tmp_path / "data").glob(".jobs*"))
    add, repeated = Journal.add, []
    monkeypatch.setattr(
        Journal, "add", lambda journal, name, result: (repeated.append(name), add(journal, name, result))
    )
    prepare(corpus, CONFIG, tmp_path / "data", print, BeamWorkers(tmp_path / "data", "direct"), 20)
    assert len([name for name in repeated if name.startswith("cleaning")]) == 15 - 3
    prepare(corpus, CONFIG, tmp_path / "whole", print, shard_pairs=20)
    assert_same_folder(tmp_path / "data", tmp_path / "whole")
    assert not list((tmp_path / "data").glob(".jobs*"))


def test_an_error_in_a_job_reaches_the_caller(tmp_path):
    workers = BeamWorkers(tmp_path, "direct")
    with pytest.raises(InputError, match="^job 2$"):
        list(workers.run(square, [(number, 2) for number in range(3)]))
    with pytest.raises(InputError, match=r"^the pipeline of Apache Beam failed: .*division by zero.*$"):
        list(workers.run(divide, [(1, 0)]))
    assert list(tmp_path.iterdir()) == []


def test_workers_that_do_not_see_the_folder_are_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(beam_workers, "_PATIENCE_SECONDS", 0.0)
    message = rf"^1 results are missing in {tmp_path}: all workers of Apache Beam must see this folder under this path"
    with pytest.raises(InputError, match=message):
        list(BeamWorkers(tmp_path, "direct").run(move_jobs, [(7, tmp_path)]))

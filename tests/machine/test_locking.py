"""A run is trained by one process at a time; a lock ends with its process."""

import errno
import fcntl
import pathlib
import subprocess
import sys

import pytest

from t2t_keras.errors import InputError
from t2t_keras.machine import locking
from t2t_keras.runs.run import Run

HOLDER = """
import os, sys, time
from t2t_keras.runs.run import Run
with Run(sys.argv[1]).lock():
    if os.fork() == 0:  # The child holds the lock until it executes another program, which closes the inherited files.
        time.sleep(0.5)
        os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(20)"])
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_lock_excludes_other_processes_and_ends_with_its_own(tmp_path, monkeypatch):
    run = Run(tmp_path / "run")
    command = [sys.executable, "-c", HOLDER, run.path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=pathlib.Path(__file__).parents[2]) as holder:
        assert holder.stdout.readline() == "held\n"
        monkeypatch.setattr(locking, "_PATIENCE_SECONDS", 0.0)
        with pytest.raises(InputError, match=f"run is already being trained by process {holder.pid} on "), run.lock():
            pytest.fail("the lock was not exclusive")
        holder.kill()
        holder.wait()
        # The child holds the lock for a shorter time, and lives longer.
        monkeypatch.setattr(locking, "_PATIENCE_SECONDS", 19.0)
        with run.lock():
            monkeypatch.setattr(locking, "_PATIENCE_SECONDS", 0.1)
            with pytest.raises(InputError, match="process"), run.lock():
                pytest.fail("one process got the lock twice")
        with run.lock():
            pass


def test_a_folder_that_cannot_be_locked(tmp_path, monkeypatch, caplog):
    def unsupported(*arguments):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with Run(tmp_path).lock():
        assert "cannot be locked (No locks available)" in caplog.text


def test_a_file_in_place_of_the_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot train in .*file"), Run(tmp_path / "file").lock():
        pytest.fail("a file was locked")

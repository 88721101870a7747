"""Writing checkpoints in the background: one at a time, with errors passed to the caller."""

import contextlib
import dataclasses
import errno
import logging
import os
import threading

import numpy as np
import pytest

from t2t_keras.errors import InputError
from t2t_keras.runs import checkpoints
from t2t_keras.runs.background import CheckpointWriter
from t2t_keras.runs.checkpoints import VALIDATIONS, ValidationRecord


def save(writer, step: int, best: ValidationRecord | None = None) -> None:
    """Saves a checkpoint; a validated one is saved in two parts."""
    arguments = (step, {"w": np.full(3, step, np.float32)}, {"m": np.zeros(2)})
    if best is None:
        writer.save(*arguments, {"batch": step})
    else:
        writer.save(*arguments, {"batch": None}, is_provisional=True)
        writer.complete(step, {"batch": step, VALIDATIONS: [dataclasses.asdict(best)]})


@pytest.fixture
def writer(tmp_path):
    with CheckpointWriter(tmp_path, keep=2) as writer:
        yield writer


@pytest.fixture
def gate(monkeypatch):
    """Makes `checkpoints.save` wait until the gate is opened."""
    gate, real = threading.Event(), checkpoints.save

    def wait_and_save(*arguments):
        assert gate.wait(60)
        return real(*arguments)

    monkeypatch.setattr(checkpoints, "save", wait_and_save)
    yield gate
    gate.set()


@pytest.fixture
def disk(monkeypatch):
    """Makes writing fail with the error `disk[0]` until it is cleared."""
    state, real = [0], checkpoints.write_arrays

    def write_or_fail(*arguments):
        if state[0]:
            raise OSError(state[0], os.strerror(state[0]))
        return real(*arguments)

    monkeypatch.setattr(checkpoints, "write_arrays", write_or_fail)
    return state


def test_the_caller_does_not_wait_but_the_next_one_does(tmp_path, writer, gate):
    save(writer, 1)
    assert checkpoints.steps(tmp_path) == []
    threading.Timer(0.05, gate.set).start()
    save(writer, 2)  # waits for the first
    assert checkpoints.steps(tmp_path)[0] == 1
    writer.wait()
    assert checkpoints.steps(tmp_path) == [1, 2]
    assert (checkpoints.latest(tmp_path).state, checkpoints.latest(tmp_path).step) == ({"batch": 2}, 2)


def test_the_order_of_writing_completing_and_deleting(monkeypatch, tmp_path, writer):
    """Old checkpoints are deleted last, so that a kill at any point loses nothing."""
    events = []
    for name in ("save", "replace_state", "prune"):
        real = getattr(checkpoints, name)
        monkeypatch.setattr(
            checkpoints, name, lambda *a, _name=name, _real=real: (events.append((_name, a[1])), _real(*a))
        )
    save(writer, 7, ValidationRecord(7, "bleu", 30.0))
    writer.wait()
    assert events == [("save", 7), ("replace_state", 7), ("prune", 2)]


def test_nothing_is_deleted_for_a_provisional_checkpoint(tmp_path, writer):
    for step in (1, 2):
        save(writer, step)
    writer.save(3, {"w": np.ones(3)}, {}, {"validated": False}, is_provisional=True)
    writer.wait()
    assert checkpoints.steps(tmp_path) == [1, 2, 3]
    assert checkpoints.latest(tmp_path).state == {"validated": False}
    writer.complete(3, {"validated": True, VALIDATIONS: [dataclasses.asdict(ValidationRecord(1, "loss", 1.0))]})
    writer.wait()
    assert checkpoints.steps(tmp_path) == [1, 2, 3]  # the best one and the newest two
    assert checkpoints.latest(tmp_path).state["validated"]
    np.testing.assert_array_equal(checkpoints.latest(tmp_path).weights["w"], np.ones(3))
    save(writer, 4)
    writer.wait()
    assert checkpoints.steps(tmp_path) == [3, 4]


def test_withdrawing_a_provisional_checkpoint(tmp_path, writer):
    save(writer, 1)
    writer.save(2, {}, {}, {}, is_provisional=True)
    writer.withdraw(2)
    writer.wait()
    assert checkpoints.steps(tmp_path) == [1]


def test_a_checkpoint_of_an_earlier_process_is_completed(tmp_path, writer):
    for step in (1, 2, 3, 4):
        checkpoints.save(tmp_path, step, {}, {}, {})
    writer.complete(3, {VALIDATIONS: [dataclasses.asdict(ValidationRecord(3, "loss", 1.0))]})  # the fourth was damaged
    writer.wait()
    assert checkpoints.steps(tmp_path) == [2, 3]
    assert checkpoints.best(tmp_path).step == 3


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("when", ["next", "end"])
def test_an_error_is_raised_by_the_next_call(tmp_path, writer, disk, when, error):
    save(writer, 1)
    writer.wait()
    disk[0] = error
    save(writer, 2, ValidationRecord(2, "loss", 1.0))
    with pytest.raises(InputError, match=f"cannot save checkpoint .*step_00000002: {os.strerror(error)}; earlier"):
        save(writer, 3) if when == "next" else writer.wait()
    assert [entry.name for entry in tmp_path.iterdir()] == ["step_00000001"]
    disk[0] = 0
    save(writer, 4)  # The error is raised once.
    writer.wait()
    assert checkpoints.steps(tmp_path) == [1, 4]


def test_leaving_the_context_waits_and_reports_errors(tmp_path, disk, caplog, gate):
    with CheckpointWriter(tmp_path, keep=2) as writer:
        save(writer, 1)
        gate.set()
    assert checkpoints.steps(tmp_path) == [1]
    disk[0] = errno.EIO
    with caplog.at_level(logging.WARNING), CheckpointWriter(tmp_path, keep=2) as writer:
        save(writer, 2)
    (record,) = caplog.records
    assert "step_00000002: Input/output error" in record.getMessage()


def test_an_interrupted_wait_does_not_stop_the_writing(monkeypatch, tmp_path, writer, gate):
    save(writer, 1)
    with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
        patch.setattr(threading.Thread, "join", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
        writer.join()
        pytest.fail("the wait was not interrupted")
    gate.set()
    writer.wait()
    assert checkpoints.steps(tmp_path) == [1]

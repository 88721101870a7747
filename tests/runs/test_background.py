"""Writing in the background: one at a time, errors come out, a full disk ends nothing."""

import contextlib
import errno
import logging
import os
import threading

import numpy as np
import pytest

from t2t_keras.errors import InputError
from t2t_keras.runs import background, checkpoint_files, checkpoints
from t2t_keras.runs.background import CheckpointWriter
from t2t_keras.runs.checkpoints import Best


def save(writer, step: int, best: Best | None = None) -> None:
    """Saves a checkpoint, in two parts if it is the best one."""
    arguments = (step, {"w": np.full(3, step, np.float32)}, {"m": np.zeros(2)})
    if best is None:
        writer.save(*arguments, {"batch": step})
    else:
        writer.save(*arguments, {"batch": None}, is_provisional=True)
        writer.complete(step, {"batch": step}, best)


@pytest.fixture
def writer(tmp_path):
    writer = CheckpointWriter(tmp_path, keep=2)
    yield writer
    writer.close()


@pytest.fixture
def gate(monkeypatch):
    """`checkpoints.save` begins when the gate is opened."""
    gate, real = threading.Event(), checkpoints.save

    def save_later(*arguments):
        assert gate.wait(60)
        return real(*arguments)

    monkeypatch.setattr(checkpoints, "save", save_later)
    yield gate
    gate.set()


@pytest.fixture
def disk(monkeypatch):
    """A disk with an error, until that is cleared: `disk[0]` is its number, `disk[1]` how often it was met."""
    state, real = [0, 0], checkpoint_files.write_arrays

    def write(*arguments):
        if state[0]:
            state[1] += 1
            raise OSError(state[0], os.strerror(state[0]))
        return real(*arguments)

    monkeypatch.setattr(checkpoint_files, "write_arrays", write)
    monkeypatch.setattr(background, "_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(background, "_PAUSES_BETWEEN_TRIES", 2)
    return state


def test_the_caller_does_not_wait_but_the_next_one_does(tmp_path, writer, gate):
    save(writer, 1)
    assert checkpoints.steps(tmp_path) == []
    threading.Timer(0.05, gate.set).start()
    save(writer, 2)  # has waited for the first
    assert checkpoints.steps(tmp_path)[0] == 1
    writer.finish(lambda: False)
    assert checkpoints.steps(tmp_path) == [1, 2]
    assert (checkpoints.latest(tmp_path).state, checkpoints.latest(tmp_path).step) == ({"batch": 2}, 2)


def test_the_best_is_noted_and_kept_and_old_ones_go(tmp_path, writer):
    for step in range(1, 6):
        save(writer, step, Best(step, "loss", 1.0) if step == 2 else None)
    writer.finish(lambda: False)
    assert checkpoints.steps(tmp_path) == [2, 4, 5]
    assert checkpoints.best(tmp_path) == Best(2, "loss", 1.0)


def test_the_order_in_which_things_happen(monkeypatch, tmp_path, writer):
    """Written, then noted as the best, then old ones deleted: a death in between loses nothing."""
    events = []
    for name in ("save", "replace_state", "set_best", "prune"):
        real = getattr(checkpoints, name)
        monkeypatch.setattr(
            checkpoints, name, lambda *a, _name=name, _real=real: (events.append((_name, a[1])), _real(*a))
        )
    save(writer, 7, Best(7, "bleu", 30.0))
    writer.finish(lambda: False)
    assert events == [("save", 7), ("replace_state", 7), ("set_best", 7), ("prune", 2)]


def test_nothing_is_deleted_for_a_provisional_checkpoint(tmp_path, writer):
    for step in (1, 2):
        save(writer, step)
    writer.save(3, {"w": np.ones(3)}, {}, {"validated": False}, is_provisional=True)
    writer.wait()
    assert checkpoints.steps(tmp_path) == [1, 2, 3]
    assert checkpoints.latest(tmp_path).state == {"validated": False}
    writer.complete(3, {"validated": True})
    writer.wait()
    assert checkpoints.steps(tmp_path) == [2, 3]
    assert checkpoints.latest(tmp_path).state == {"validated": True}
    np.testing.assert_array_equal(checkpoints.latest(tmp_path).weights["w"], np.ones(3))


def test_a_provisional_checkpoint_that_is_withdrawn(tmp_path, writer):
    save(writer, 1)
    writer.save(2, {}, {}, {}, is_provisional=True)
    writer.withdraw(2)
    writer.finish(lambda: False)
    assert checkpoints.steps(tmp_path) == [1]


def test_a_checkpoint_of_an_earlier_life_is_completed(tmp_path, writer):
    for step in (1, 2, 3, 4):
        checkpoints.save(tmp_path, step, {}, {}, {})
    writer.complete(3, {"validated": True}, Best(3, "loss", 1.0))  # the fourth was damaged
    writer.finish(lambda: False)
    assert checkpoints.steps(tmp_path) == [2, 3]
    assert checkpoints.best(tmp_path).step == 3


def room_after(looks, disk):
    """There is no hurry to end, and after so many looks somebody has made room."""
    left = iter(range(looks))

    def is_in_a_hurry():
        if next(left, None) is None:
            disk[0] = 0
        return False

    return is_in_a_hurry


def test_what_was_completed_before_it_could_be_written(tmp_path, writer, disk):
    disk[0] = errno.ENOSPC
    save(writer, 5, Best(5, "loss", 1.0))
    writer.finish(room_after(5, disk))
    assert checkpoints.latest(tmp_path).state == {"batch": 5}
    assert checkpoints.best(tmp_path).step == 5


@pytest.mark.parametrize("when", ["next", "end"])
def test_an_error_comes_out_later(tmp_path, writer, disk, when):
    save(writer, 1)
    writer.wait()
    disk[0] = errno.EIO
    save(writer, 2)
    with pytest.raises(InputError, match=r"cannot save checkpoint .*step_00000002: Input/output error; the earlier"):
        save(writer, 3) if when == "next" else writer.finish(lambda: False)
    assert [entry.name for entry in tmp_path.iterdir()] == ["step_00000001"]
    disk[0] = 0
    save(writer, 4)  # it was told once
    writer.finish(lambda: False)
    assert checkpoints.steps(tmp_path) == [1, 4]


def test_an_error_that_is_no_fault_of_the_disk_comes_out_as_it_is(writer):
    writer.save(1, {"odd": np.array([None])}, {}, {})
    with pytest.raises(ValueError, match="object for 'odd'"):
        writer.finish(lambda: False)


def test_the_note_of_the_best_and_pruning_can_fail_too(monkeypatch, tmp_path, writer):
    def fail(*arguments):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(checkpoints, "prune", fail)
    save(writer, 1)
    with pytest.raises(InputError, match=f"cannot write in {tmp_path}: Read-only file system"):
        writer.finish(lambda: False)


def test_a_full_disk_is_warned_of_and_training_goes_on(tmp_path, writer, disk, caplog):
    save(writer, 10)
    writer.wait()
    disk[0] = errno.ENOSPC
    with caplog.at_level(logging.WARNING):
        save(writer, 20, Best(20, "loss", 1.0))
        save(writer, 30)
        writer.wait()
    first, second = (record.getMessage() for record in caplog.records)
    assert "step_00000020: No space left on device; the earlier ones are as they were" in first
    assert "the newest is of step 10" in first and "step_00000030" in second
    assert [entry.name for entry in tmp_path.iterdir()] == ["step_00000010"]
    disk[0] = 0
    save(writer, 40)
    writer.finish(lambda: False)
    assert checkpoints.steps(tmp_path) == [10, 40]
    assert checkpoints.best(tmp_path) is None  # the best one was never saved
    assert writer.given_up == 30


def test_the_best_is_noted_when_there_is_room_again(monkeypatch, tmp_path, writer):
    real, full = checkpoints.set_best, [True]

    def set_best(*arguments):
        if full[0]:
            raise OSError(errno.EDQUOT, "Disk quota exceeded")
        real(*arguments)

    monkeypatch.setattr(checkpoints, "set_best", set_best)
    save(writer, 1, Best(1, "loss", 1.0))
    for step in (2, 3):
        save(writer, step)
    writer.wait()
    assert checkpoints.steps(tmp_path) == [1, 2, 3]  # not pruned, for the best could go
    full[0] = False
    save(writer, 4)
    writer.finish(lambda: False)
    assert checkpoints.best(tmp_path) == Best(1, "loss", 1.0)
    assert checkpoints.steps(tmp_path) == [1, 3, 4]


def test_the_best_is_noted_though_its_state_found_no_room(monkeypatch, tmp_path, writer):
    real = checkpoints.replace_state

    def replace_state(directory, step, state):
        if step == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(directory, step, state)

    monkeypatch.setattr(checkpoints, "replace_state", replace_state)
    save(writer, 1, Best(1, "loss", 5.0))
    save(writer, 2, Best(2, "loss", 3.0))
    writer.wait()
    assert writer.given_up is None and writer.best() == Best(2, "loss", 3.0)
    for step in (3, 4, 5):
        save(writer, step)
    writer.finish(lambda: False)
    assert checkpoints.best(tmp_path) == Best(2, "loss", 3.0)
    assert checkpoints.steps(tmp_path) == [2, 4, 5]


def test_the_end_waits_for_room(monkeypatch, tmp_path, writer, disk, caplog):
    disk[0] = errno.ENOSPC
    save(writer, 5)
    writer.join()
    with caplog.at_level(logging.WARNING):
        writer.finish(room_after(10, disk))
    assert checkpoints.latest(tmp_path).step == 5
    assert disk[1] > 2  # tried several times
    assert [record.getMessage() for record in caplog.records if "waiting for room" in record.getMessage()]
    assert len(caplog.records) <= 2  # but said once


@pytest.mark.parametrize("looks", [0, 7])
def test_a_signal_ends_the_waiting(writer, disk, looks):
    disk[0] = errno.ENOSPC
    save(writer, 5)
    answers = iter([False] * looks)
    with pytest.raises(InputError, match=r"step_00000005: No space left on device"):
        writer.finish(lambda: next(answers, True))


def test_close_waits_and_tells_of_errors(tmp_path, writer, disk, caplog, gate):
    save(writer, 1)
    gate.set()
    writer.close()
    assert checkpoints.steps(tmp_path) == [1]
    disk[0] = errno.EIO
    save(writer, 2)
    with caplog.at_level(logging.WARNING):
        writer.close()
        writer.close()
    (record,) = caplog.records
    assert "step_00000002: Input/output error" in record.getMessage()


def test_an_interrupted_wait_leaves_the_writing_alone(monkeypatch, tmp_path, writer, gate):
    save(writer, 1)
    with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
        patch.setattr(threading.Thread, "join", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
        writer.join()
        pytest.fail("was not interrupted")
    gate.set()
    writer.finish(lambda: False)
    assert checkpoints.steps(tmp_path) == [1]

"""Faults of the disk, other workers and concurrent trainings."""

import contextlib
import errno
import os
import signal
import threading

import pytest

from t2t_keras.data.encoded import EncodedCorpus
from t2t_keras.errors import InputError
from t2t_keras.machine import locking
from t2t_keras.runs import checkpoints
from t2t_keras.runs.run import Run
from t2t_keras.training import trainer as trainer_module
from t2t_keras.training.devices.workers import Workers
from t2t_keras.training.monitor import Monitor
from tests.training.tiny_training import make_trainer, records, saved_steps, send_at, train


def failing_at(monkeypatch, step: int, error: int) -> None:
    """Makes writing the checkpoint of a step fail."""
    save = checkpoints.write_arrays

    def write(path, arrays):
        if f"step_{step:08}" in str(path):
            raise OSError(error, os.strerror(error), str(path))
        return save(path, arrays)

    monkeypatch.setattr(checkpoints, "write_arrays", write)


@pytest.mark.integration
def test_a_full_disk_ends_the_training_and_the_same_command_resumes_it(monkeypatch, tmp_path, data, scripted):
    scripted(5.0, 3.0, 3.5)
    with monkeypatch.context() as patch:
        failing_at(patch, 8, errno.ENOSPC)
        with pytest.raises(InputError, match="step_00000008: No space left on device; earlier checkpoints"):
            train(tmp_path, data)
    assert saved_steps(tmp_path) == [4]
    scripted(3.0, 3.5)
    assert train(tmp_path, data).step == 12
    assert checkpoints.best(Run(tmp_path).checkpoints_path) == checkpoints.ValidationRecord(8, "loss", 3.0)
    assert [line["step"] for line in records(tmp_path, "train")] == list(range(1, 13))


def test_metrics_that_cannot_be_written_end_all_workers_alike(monkeypatch, tmp_path, data, scripted):
    """The first worker passes errors of writing metrics to all others before a checkpoint."""
    del scripted
    inside, fail_together = [], Workers.fail_together

    @contextlib.contextmanager
    def watched(self):
        with fail_together(self):
            inside.append(True)
            try:
                yield
            finally:
                inside.pop()

    def sync(self):
        assert inside
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Workers, "fail_together", watched)
    monkeypatch.setattr(Monitor, "sync", sync)
    with pytest.raises(OSError, match="Input/output error"):
        train(tmp_path, data)


def test_asked_to_stop_twice_it_does_not_wait_for_a_checkpoint(monkeypatch, tmp_path, data, scripted):
    del scripted
    second_signal_sent, ended, written = threading.Event(), threading.Event(), []

    def save(directory, step, *arguments):
        os.kill(os.getpid(), signal.SIGINT)  # the second signal, while the trainer waits for this checkpoint
        second_signal_sent.set()
        ended.wait(300)
        written.append(step)

    monkeypatch.setattr(checkpoints, "save", save)
    send_at(monkeypatch, signal.SIGINT, 3)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, data)
    assert second_signal_sent.is_set() and not written
    ended.set()


@pytest.mark.integration
def test_workers_that_see_an_older_checkpoint_look_again(monkeypatch, tmp_path, data, scripted):
    """NFS can show a directory as it was up to a minute ago."""
    del scripted
    train(tmp_path, data, max_steps=4)
    latest, pauses = checkpoints.latest, []
    monkeypatch.setattr(checkpoints, "latest", lambda path: latest(path) if len(pauses) > 2 else None)
    monkeypatch.setattr(trainer_module.time, "sleep", pauses.append)
    gather = Workers.gather
    # A fake worker sees step 4 all the time.
    monkeypatch.setattr(
        Workers,
        "gather",
        lambda self, message: [*gather(self, message), b"sees step 4"][: 2 if b"sees" in message else 1],
    )
    assert train(tmp_path, data, max_steps=8).step == 8
    assert len(pauses) == 3
    assert [line["step"] for line in records(tmp_path, "train")] == list(range(1, 9))


def test_workers_that_keep_seeing_different_checkpoints(monkeypatch, tmp_path, data, scripted):
    del scripted
    pauses = []
    monkeypatch.setattr(trainer_module.time, "sleep", pauses.append)
    gather = Workers.gather
    monkeypatch.setattr(
        Workers,
        "gather",
        lambda self, message: [*gather(self, message), b"sees step 4"][: 2 if b"sees" in message else 1],
    )
    with pytest.raises(InputError, match="newest checkpoints in .*: worker 0 sees none, worker 1 sees step 4"):
        train(tmp_path, data)
    assert sum(pauses) >= 100


@pytest.mark.integration
def test_one_training_at_a_time(monkeypatch, tmp_path, data, scripted):
    del scripted
    monkeypatch.setattr(locking, "_PATIENCE_SECONDS", 0.0)
    trainer = make_trainer(tmp_path, data)
    with Run(tmp_path).lock():
        with pytest.raises(InputError, match="is already being trained"):
            make_trainer(tmp_path, data)
        with pytest.raises(InputError, match="is already being trained"):
            trainer.train()
    assert trainer.train().step == 12


@pytest.mark.integration
def test_files_of_a_killed_training_are_removed_at_the_next_start(tmp_path, data, scripted):
    del scripted
    train(tmp_path, data, max_steps=4)
    half = Run(tmp_path).checkpoints_path / ".tmp_step_00000008"
    half.mkdir()
    for path in (tmp_path / ".curves.svg.77.tmp", half / "weights.npz"):
        path.write_text("")
    train(tmp_path, data, max_steps=4)  # has nothing to save
    assert not half.exists() and not (tmp_path / ".curves.svg.77.tmp").exists()


@pytest.mark.integration
def test_a_read_error_is_reported_unchanged(monkeypatch, tmp_path, data):
    """TensorFlow would replace the error of a Python function with its own, whose message has forty lines."""

    def read(self, rows, length=None):
        raise InputError("too many files are open (ulimit -n is 64)")

    trainer = make_trainer(tmp_path, data)
    monkeypatch.setattr(EncodedCorpus, "source_ids", read)
    with pytest.raises(InputError, match=r"^too many files are open \(ulimit -n is 64\)$"):
        trainer.train()

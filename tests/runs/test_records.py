"""metrics.jsonl: whole lines only, each once, also on a full disk."""

import errno
import json
import logging
import os

import pytest

from t2t_keras.runs.records import RecordFile, read_metrics


class FullDisk:
    """A file that takes so many bytes and no more."""

    def __init__(self, file, room: int, error: int = errno.ENOSPC):
        self.file, self.room, self.error = file, room, error

    def __getattr__(self, name):
        return getattr(self.file, name)

    def write(self, data: bytes) -> int:
        if not self.room:
            raise OSError(self.error, os.strerror(self.error))
        count = self.file.write(data[: self.room])
        self.room -= count
        return count


def record(step: int) -> dict:
    return {"step": step, "kind": "train", "loss": 0.5 * step}


def opened(path, last_step: int) -> RecordFile:
    file = RecordFile(path, last_step)
    file.open()
    return file


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run" / "metrics.jsonl"


def test_lines_wait_for_room(path, caplog):
    file = opened(path, 0)
    file.append(record(1))
    line = len(path.read_bytes())
    disk = file._file = FullDisk(file._file, room=line + line // 2)
    with caplog.at_level(logging.WARNING):
        for step in (2, 3, 4):
            file.append(record(step))
    assert read_metrics(path) == [record(1), record(2)]
    assert path.read_bytes().endswith(b"\n")  # no half line
    (warning,) = caplog.records
    assert "No space left on device" in warning.getMessage() and str(path) in warning.getMessage()
    disk.room = 10**6
    file.append(record(5))
    file.sync()
    file.close()
    assert read_metrics(path) == [record(step) for step in (1, 2, 3, 4, 5)]


def test_lines_wait_where_only_writing_them_through_finds_no_room(path, monkeypatch, caplog):
    file = opened(path, 0)
    file.append(record(1))
    file.sync()
    file.append(record(2))

    def full(descriptor: int) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(os, "fsync", full)
        file.sync()
        assert read_metrics(path) == [record(1)]
        file.append(record(3))
        file.sync()
    assert all("Disk quota exceeded" in warning.getMessage() for warning in caplog.records) and caplog.records
    file.sync()
    file.close()
    assert read_metrics(path) == [record(1), record(2), record(3)]


def test_other_errors_are_errors(path):
    file = opened(path, 0)
    file._file = FullDisk(file._file, room=0, error=errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        file.append(record(1))
    with pytest.raises(OSError, match="Input/output error"):
        file.close()
    assert file.is_closed


def test_what_will_happen_again_is_dropped(path):
    path.parent.mkdir()
    path.write_text("".join(json.dumps(record(step)) + "\n" for step in (1, 2, 3)) + '{"step": 4, "ki')
    file = RecordFile(path, 2)
    assert (file.kept, file.is_shorter) == ([record(1), record(2)], True)
    assert file.is_closed and len(path.read_text()) > 100  # nothing has happened yet
    file.open()
    file.append(record(3))
    file.close()
    assert file.is_closed
    assert read_metrics(path) == [record(1), record(2), record(3)]
    again = opened(path, 3)
    assert (again.kept, again.is_shorter) == ([record(1), record(2), record(3)], False)
    again.close()

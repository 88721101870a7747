"""metrics.jsonl contains only complete lines, each once."""

import errno
import json
import os

import pytest

from t2t_keras.errors import InputError
from t2t_keras.runs.records import RecordFile, read_metrics


class FullDisk:
    """A file that accepts a limited number of bytes."""

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


def open_records(path, last_step: int) -> RecordFile:
    file = RecordFile(path, last_step)
    file.open()
    return file


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run" / "metrics.jsonl"


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_partly_written_line_is_an_error_and_is_removed(path, error):
    file = open_records(path, 0)
    file.append(record(1))
    line = len(path.read_bytes())
    file._file = FullDisk(file._file, room=line + line // 2, error=error)
    file.append(record(2))
    with pytest.raises(InputError, match=f"{path} cannot be written: {os.strerror(error)}"):
        file.append(record(3))
    file.close()
    assert read_metrics(path) == [record(1), record(2)]
    assert path.read_bytes().endswith(b"\n")  # no partial line


def test_records_of_repeated_steps_are_dropped(path):
    path.parent.mkdir()
    path.write_text("".join(json.dumps(record(step)) + "\n" for step in (1, 2, 3)) + '{"step": 4, "ki')
    file = RecordFile(path, 2)
    assert (file.records, file.is_shorter) == ([record(1), record(2)], True)
    assert file.is_closed and len(path.read_text()) > 100  # not changed yet
    file.open()
    file.append(record(3))
    file.close()
    assert file.is_closed
    assert read_metrics(path) == [record(1), record(2), record(3)]
    again = open_records(path, 3)
    assert (again.records, again.is_shorter) == ([record(1), record(2), record(3)], False)
    again.close()

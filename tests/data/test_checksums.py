"""Checksums: cached, and recomputed for each changed file."""

import hashlib
import os
import time

import pytest

from t2t_keras.data import checksums as module
from t2t_keras.data.checksums import checksums
from t2t_keras.errors import InputError


@pytest.fixture
def reads(monkeypatch):
    """Records the paths that are read, in order."""
    paths, read = [], module.checksum

    def record_and_read(path):
        paths.append(path)
        return read(path)

    monkeypatch.setattr(module, "checksum", record_and_read)
    return paths


@pytest.fixture
def files(tmp_path):
    paths = {name: tmp_path / f"{name}.txt" for name in ("one", "two")}
    for name, path in paths.items():
        path.write_text(name)
    return paths


def expected(files):
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}


def make_old(monkeypatch):
    """Makes all files count as written long ago."""
    monkeypatch.setattr(module, "_SETTLED_SECONDS", -60.0)


def test_files_are_read_once(tmp_path, files, reads, monkeypatch):
    make_old(monkeypatch)
    for _ in range(3):
        assert checksums(files, tmp_path / "known") == expected(files)
    assert reads == list(files.values())
    assert checksums({"other name": files["two"]}, tmp_path / "known") == {"other name": expected(files)["two"]}
    assert len(reads) == 2


def test_a_changed_file_with_the_same_size_and_date_is_read_again(tmp_path, files, reads, monkeypatch):
    make_old(monkeypatch)
    before = checksums(files, tmp_path / "known")
    times = files["one"].stat()
    time.sleep(0.02)  # longer than one tick of the file system's clock
    files["one"].write_text("eno")
    os.utime(files["one"], ns=(times.st_atime_ns, times.st_mtime_ns))
    assert checksums(files, tmp_path / "known") == expected(files) != before
    assert reads == [*files.values(), files["one"]]


def test_a_file_that_was_written_just_now_is_read_again(tmp_path, files, reads, monkeypatch):
    monkeypatch.setattr(module, "_SETTLED_SECONDS", 600.0)
    for _ in range(2):
        checksums(files, tmp_path / "known")
    assert reads == [*files.values()] * 2


def test_a_file_that_changes_while_it_is_read_is_read_again(tmp_path, files, monkeypatch):
    make_old(monkeypatch)
    read = module.checksum

    def read_and_append(path):
        digest = read(path)
        with open(path, "a") as file:
            file.write("more")
        return digest

    with monkeypatch.context() as patched:
        patched.setattr(module, "checksum", read_and_append)
        checksums(files, tmp_path / "known")
    assert checksums(files, tmp_path / "known") == expected(files)


@pytest.mark.parametrize("record", ["{broken", "[]", '{"/nowhere": 5}'])
def test_a_damaged_record_is_ignored(tmp_path, files, record, monkeypatch):
    make_old(monkeypatch)
    (tmp_path / "known").write_text(record)
    assert checksums(files, tmp_path / "known") == expected(files)
    assert checksums(files, tmp_path / "no folder" / "known") == expected(files), (
        "a record that cannot be written is ignored as well"
    )


def test_a_missing_file_is_an_error(tmp_path, files):
    files["two"].unlink()
    with pytest.raises(InputError, match=r"two.txt: cannot be read: No such file"):
        checksums(files, tmp_path / "known")

"""Checksums that are computed once, and again for every change of a file."""

import hashlib
import os
import time

import pytest

from t2t_keras.data import checksums as module
from t2t_keras.data.checksums import checksums
from t2t_keras.errors import InputError


@pytest.fixture
def reads(monkeypatch):
    """The paths that are read, in order."""
    paths, read = [], module.checksum

    def recording(path):
        paths.append(path)
        return read(path)

    monkeypatch.setattr(module, "checksum", recording)
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
    """As if all files had been there for long."""
    monkeypatch.setattr(module, "_SETTLED_SECONDS", -60.0)


def test_files_are_read_once(tmp_path, files, reads, monkeypatch):
    make_old(monkeypatch)
    for _ in range(3):
        assert checksums(files, tmp_path / "known") == expected(files)
    assert reads == list(files.values())
    assert checksums({"other name": files["two"]}, tmp_path / "known") == {"other name": expected(files)["two"]}
    assert len(reads) == 2


def test_a_changed_file_is_read_again_whatever_its_size_and_date(tmp_path, files, reads, monkeypatch):
    make_old(monkeypatch)
    before = checksums(files, tmp_path / "known")
    times = files["one"].stat()
    time.sleep(0.02)  # longer than the system's clock of files takes for a step
    files["one"].write_text("eno")
    os.utime(files["one"], ns=(times.st_atime_ns, times.st_mtime_ns))
    assert checksums(files, tmp_path / "known") == expected(files) != before
    assert reads == [*files.values(), files["one"]]


def test_a_file_that_was_written_just_now_is_read_again(tmp_path, files, reads, monkeypatch):
    monkeypatch.setattr(module, "_SETTLED_SECONDS", 600.0)
    for _ in range(2):
        checksums(files, tmp_path / "known")
    assert reads == [*files.values()] * 2


def test_a_file_that_is_written_meanwhile_is_read_again(tmp_path, files, monkeypatch):
    make_old(monkeypatch)
    read = module.checksum

    def growing(path):
        actual = read(path)
        with open(path, "a") as file:
            file.write("more")
        return actual

    with monkeypatch.context() as patched:
        patched.setattr(module, "checksum", growing)
        checksums(files, tmp_path / "known")
    assert checksums(files, tmp_path / "known") == expected(files)


@pytest.mark.parametrize("known", ["{broken", "[]", '{"/nowhere": 5}'])
def test_a_damaged_record_is_no_record(tmp_path, files, known, monkeypatch):
    make_old(monkeypatch)
    (tmp_path / "known").write_text(known)
    assert checksums(files, tmp_path / "known") == expected(files)
    assert checksums(files, tmp_path / "no folder" / "known") == expected(files), "nor is it one that cannot be written"


def test_a_missing_file_is_named(tmp_path, files):
    files["two"].unlink()
    with pytest.raises(InputError, match=r"two.txt: cannot be read: No such file"):
        checksums(files, tmp_path / "known")

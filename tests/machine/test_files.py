import os
import re
from pathlib import Path

import pytest

from t2t_keras.data.prepare import PreparedData
from t2t_keras.data.sources import corpora
from t2t_keras.errors import InputError
from t2t_keras.machine.files import local_path, read_json, replacing, sha256, temporary_name, write_json
from t2t_keras.runs.run import Run


def test_json_round_trip(tmp_path):
    path = tmp_path / "values.json"
    assert read_json(path) is None
    write_json(path, {"name": "Größe", "numbers": [1, 2.5, None]})
    assert read_json(path) == {"name": "Größe", "numbers": [1, 2.5, None]}
    assert "Größe" in path.read_text(encoding="utf-8") and [entry.name for entry in tmp_path.iterdir()] == [path.name]
    path.write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match=r"values\.json is damaged: "):
        read_json(path)


def test_a_checksum_depends_on_the_contents(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    assert sha256(path) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


URLS = ["s3://bucket/run", Path("s3://bucket/run"), "file:///mine", "run@gs://mine"]


@pytest.mark.parametrize("url", URLS)
def test_a_url_is_rejected_as_a_path(url):
    """This includes URLs that pathlib has changed by removing a slash."""
    with pytest.raises(InputError, match=f"^--model_dir={re.escape(str(url))} is not a path of this machine"):
        local_path(url, "--model_dir")


def test_functions_do_not_create_a_folder_for_a_url(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, call in {
        "model_dir": Run,
        "data_dir": PreparedData.open,
        "train_source": lambda url: corpora.files({"train": (url, None)}),
        "path": lambda url: write_json(Path(url, "note.json"), {}),
    }.items():
        with pytest.raises(InputError, match=f"^{name}=s3:/"):
            call("s3://bucket/mine")
    assert not list(tmp_path.iterdir())
    for path in ("/a:/b", "de:en/run", "run@12", "a//b", ""):
        assert local_path(path, "path") == Path(path)


def test_two_containers_use_different_temporary_files(tmp_path, monkeypatch):
    """In both containers the process id is 1 and the host name can be the same."""
    monkeypatch.setattr(os, "getpid", lambda: 1)
    names = {temporary_name("config.json") for _ in range(100)}
    assert len(names) == 100
    assert all(re.fullmatch(r"\.config\.json\.[A-Za-z0-9-]+_1_[0-9a-f]{12}\.tmp", name) for name in names)
    with replacing(tmp_path / "a") as first, replacing(tmp_path / "a") as second:
        first.write("first")
        second.write("second")
    assert [path.name for path in tmp_path.iterdir()] == ["a"] and (tmp_path / "a").read_text() == "first"


def test_only_regular_files_are_replaced(tmp_path):
    """Writes through links and into pipes; a directory is an error before anything is written."""
    (tmp_path / "link").symlink_to("file")
    for text in ("one", "two"):
        with replacing(tmp_path / "link") as file:
            file.write(text)
        assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_text() == text
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with replacing(tmp_path / "pipe") as file:
        file.write("three")
    assert os.read(reader, 100) == b"three" and (tmp_path / "pipe").is_fifo()
    os.close(reader)
    with pytest.raises(IsADirectoryError, match=str(tmp_path)), replacing(tmp_path):
        raise AssertionError("work that would be lost")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link", "pipe"]


def test_files_left_by_a_killed_process_are_removed(tmp_path):
    run = Run(tmp_path)
    (tmp_path / temporary_name("config.json")).touch()
    run.remove_leftovers()
    assert not list(tmp_path.iterdir())

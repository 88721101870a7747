"""Versions of exports in object storage, with fsspec's in-memory store."""

import contextlib
import re
import shutil
from pathlib import Path

import fsspec
import pytest

from t2t_keras.errors import InputError
from t2t_keras.machine import remote_exports
from t2t_keras.machine.object_store import Store

URL = "memory://bucket/exports/mine"


@pytest.fixture
def store():
    files = fsspec.filesystem("memory")
    files.store.clear()
    files.pseudo_dirs[:] = [""]
    return Store(URL)


@pytest.fixture
def version(tmp_path) -> Path:
    """A directory that replaces an export."""
    for name in ("saved_model.pb", "variables/variables.index", "assets/vocab.model", "assets.extra/config.json"):
        path = tmp_path / "version" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"of {name}", encoding="utf-8")
    return tmp_path / "version"


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def files_with_list(version: Path) -> list[str]:
    """Returns the files of a published version, including the list of files."""
    return sorted([*files(version), "assets.extra/files.json"])


def test_versions_are_numbered_and_the_newest_is_fetched(store, version, tmp_path):
    assert not remote_exports.is_export(store) and remote_exports.fetch_newest(store, tmp_path) is None
    assert [remote_exports.publish_version(store, version) for _ in range(2)] == [f"{URL}/1", f"{URL}/2"]
    folder = tmp_path / "fetched"
    folder.mkdir()
    assert remote_exports.is_export(store) and remote_exports.fetch_newest(store, folder) == 2
    assert [path.name for path in folder.iterdir()] == ["2"] and files(folder / "2") == files_with_list(version)
    assert remote_exports.publish_version(store, version) == f"{URL}/3"
    assert remote_exports.fetch_newest(store, folder) == 3 and {path.name for path in folder.iterdir()} == {"2", "3"}
    store.remove(["3/saved_model.pb"])  # somebody deletes the file
    assert remote_exports.fetch_newest(store, folder) == 2 and [path.name for path in folder.iterdir()] == ["2"]


def test_a_different_version_with_the_same_number_is_fetched(store, version, tmp_path):
    """Numbers start again if the remote directory was deleted; a local version may also never have been published."""
    folder, graph = tmp_path / "fetched", version / "saved_model.pb"
    shutil.copytree(version, folder / "1")
    for text in ("first", "other", "third"):
        if remote_exports.is_export(store):
            fsspec.filesystem("memory").rm("/bucket", recursive=True)
        graph.write_text(text, encoding="utf-8")
        assert remote_exports.publish_version(store, version) == f"{URL}/1"
        assert remote_exports.fetch_newest(store, folder) == 1
        assert (folder / "1" / "saved_model.pb").read_text(encoding="utf-8") == text
    assert [path.name for path in folder.iterdir()] == ["1"]
    before = (folder / "1").stat().st_ino
    assert remote_exports.fetch_newest(store, folder) == 1 and (folder / "1").stat().st_ino == before


@pytest.mark.parametrize("last", range(1, 6))
def test_an_incompletely_uploaded_version_does_not_count(store, version, tmp_path, monkeypatch, last):
    """The next version gets a different number."""

    class Killed(BaseException):
        pass

    requests = []

    def kill_at_last(real):
        def request(*arguments):
            requests.append(arguments[2 if real.__name__ == "put" else 1])
            if len(requests) == last:
                raise Killed
            return real(*arguments)

        return request

    with monkeypatch.context() as patch, contextlib.suppress(Killed):
        for real in (Store.put, Store.create):
            patch.setattr(Store, real.__name__, kill_at_last(real))
        remote_exports.publish_version(store, version)
    assert len(requests) == last and (last < 5 or requests[-1] == "1/saved_model.pb")
    assert requests[0] == "1/assets.extra/files.json" and remote_exports.fetch_newest(store, tmp_path) is None
    number = 1 if last == 1 else 2
    assert remote_exports.publish_version(store, version) == f"{URL}/{number}"
    assert remote_exports.fetch_newest(store, tmp_path) == number


def test_concurrent_uploads_get_different_numbers(store, version, monkeypatch):
    create = Store.create

    def upload_and_create(*arguments):
        monkeypatch.setattr(Store, "create", create)
        assert remote_exports.publish_version(store, version) == f"{URL}/1"
        return create(*arguments)

    monkeypatch.setattr(Store, "create", upload_and_create)
    assert remote_exports.publish_version(store, version) == f"{URL}/2"


def test_damaged_or_foreign_versions_are_errors(store, version, tmp_path):
    remote_exports.publish_version(store, version)
    fsspec.filesystem("memory").pipe_file(f"{URL}/1/assets/vocab.model", b"half")
    with pytest.raises(
        InputError, match=f"^{URL}/1/assets/vocab.model is named in .+files.json, but is missing or damaged$"
    ):
        remote_exports.fetch_newest(store, tmp_path)
    assert not [path for path in tmp_path.iterdir() if path.name != "version"]
    for damaged in (b"[1]", b"{", b'{"a": 1}'):
        fsspec.filesystem("memory").pipe_file(f"{URL}/1/assets.extra/files.json", damaged)
        with pytest.raises(InputError, match=f"^{re.escape(URL)}/1/assets.extra/files.json is damaged: "):
            remote_exports.fetch_newest(store, tmp_path)
    store.remove(["1/assets.extra/files.json"])
    with pytest.raises(
        InputError, match=f"^{re.escape(URL)}/1/assets.extra/files.json is missing: publish the version"
    ):
        remote_exports.fetch_newest(store, tmp_path)

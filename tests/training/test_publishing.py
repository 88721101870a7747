"""A training whose run is in object storage: wherever it is killed, it goes on from an empty disk as if undisturbed."""

import shutil
from pathlib import Path
from typing import Any

import fsspec
import pytest

from t2t_keras.machine import remote
from t2t_keras.machine.object_store import Store
from t2t_keras.machine.remote import Mirror
from tests.training import tiny_training

pytestmark = [pytest.mark.integration, pytest.mark.slow]

URL = "memory://bucket/run"
SETTINGS = {"max_steps": 8, "checkpoint_steps": 2, "validation_steps": 4, "keep_checkpoints": 2}


class Killed(BaseException):
    """The process ends here."""


def contents(folder: Path) -> dict[str, bytes]:
    """What is published of a folder."""
    return {name: path.read_bytes() for name, path in remote.files_of(folder)}


def fill(mirror: Mirror, snapshot: Path) -> None:
    shutil.rmtree(mirror.path)
    shutil.copytree(snapshot, mirror.path)


def test_killed_in_any_of_20_uploads(tmp_path, monkeypatch):
    files = fsspec.filesystem("memory")
    files.store.clear()

    def on_an_empty_disk(name: str) -> Mirror:
        monkeypatch.setenv("T2T_KERAS_CACHE", str(tmp_path / name))
        monkeypatch.setattr(remote, "_MIRRORS", {})
        return Mirror(URL)

    data = tiny_training.make_data(tmp_path)
    tiny_training.train(tmp_path / "undisturbed", data, **SETTINGS)
    publish, snapshots = Mirror.publish, []

    def noted(mirror: Mirror) -> None:
        snapshots.append(tmp_path / f"snapshot{len(snapshots)}")
        shutil.copytree(mirror.path, snapshots[-1], ignore=shutil.ignore_patterns(".*"))
        publish(mirror)

    mirror = on_an_empty_disk("whole")
    with monkeypatch.context() as patch, mirror.held(lambda line: None):
        patch.setattr(Mirror, "publish", noted)
        tiny_training.train(mirror.path, data, **SETTINGS)
        mirror.publish()
    tiny_training.assert_same_end(mirror.path, tmp_path / "undisturbed", 8)
    assert len(snapshots) >= 6  # four checkpoints, two of them validated
    put, reached = Store.put, {}
    for last in range(1, 21):
        files.store.clear()
        writer = on_an_empty_disk(f"killed{last}")
        uploads = 0

        def put_or_die(*arguments: Any, last: int = last) -> None:
            nonlocal uploads
            uploads += 1
            if uploads == last:
                raise Killed
            put(*arguments)

        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(Store, "put", put_or_die)
            for snapshot in snapshots:
                fill(writer, snapshot)
                writer.publish()
        reader = on_an_empty_disk(f"reader{last}")
        reader.fetch()
        found = contents(reader.path)
        number = next((number for number, each in enumerate(snapshots) if contents(each) == found), None)
        assert number is not None or not found
        reached[number] = last
    assert len(reached) >= 4  # none yet, and after some of the checkpoints
    for number in reached:
        files.store.clear()
        if number is not None:
            writer = on_an_empty_disk(f"writer{number}")
            fill(writer, snapshots[number])
            writer.publish()
        resumed = on_an_empty_disk(f"resumed{number}")
        with resumed.held(lambda line: None):
            resumed.fetch()
            tiny_training.train(resumed.path, data, **SETTINGS)
        tiny_training.assert_same_end(resumed.path, tmp_path / "undisturbed", 8)
        assert tiny_training.records(resumed.path, "valid") == tiny_training.records(tmp_path / "undisturbed", "valid")

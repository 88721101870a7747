"""A checkpoint exists completely or not at all."""

import json
import os
import shutil

import numpy as np
import pytest

from t2t_keras.errors import InputError
from t2t_keras.runs import checkpoints
from tests.training.checkpoint_arrays import arrays, assert_equal, save, truncate


@pytest.mark.parametrize("ema", [None, arrays(99)])
def test_a_saved_checkpoint_is_loaded(tmp_path, ema):
    state = {"epoch": 2, "batch": 7, "seed": -1, "best": {"bleu": 0.1 + 0.2, "waited": None}}
    path = checkpoints.save(tmp_path / "new" / "checkpoints", 1000, arrays(1), arrays(2), state, ema)
    assert path == tmp_path / "new" / "checkpoints" / "step_00001000"
    loaded = checkpoints.load(path)
    assert (loaded.path, loaded.step, loaded.state) == (path, 1000, state)
    assert_equal(loaded.weights, arrays(1))
    assert_equal(loaded.optimizer, arrays(2))
    if ema is None:
        assert loaded.ema is None
    else:
        assert_equal(loaded.ema, ema)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    with np.load(path / "weights.npz") as archive:  # plain NumPy can read it
        np.testing.assert_array_equal(archive["file"], arrays(1)["file"])


def test_saving_a_step_again_replaces_it(tmp_path):
    save(tmp_path, 5)
    save(tmp_path, 5, weights=arrays(77), ema=arrays(78))
    save(tmp_path, 5, weights=arrays(77))
    assert_equal(checkpoints.load(tmp_path / "step_00000005").weights, arrays(77))
    assert checkpoints.load(tmp_path / "step_00000005").ema is None
    assert len(list(tmp_path.iterdir())) == 1


def test_a_checkpoint_is_renamed_after_its_files_are_synced(tmp_path, monkeypatch):
    events = []
    sync, rename = checkpoints.sync_directory, os.rename

    def record_sync(directory):
        events.append(("sync", directory.name, sorted(path.name for path in directory.iterdir())))
        sync(directory)

    monkeypatch.setattr(checkpoints, "sync_directory", record_sync)
    monkeypatch.setattr(checkpoints.os, "rename", lambda *paths: (events.append("rename"), rename(*paths)))
    save(tmp_path, 1)
    assert events == [
        ("sync", ".tmp_step_00000001", ["optimizer.npz", "state.json", "weights.npz"]),
        "rename",
        ("sync", tmp_path.name, ["step_00000001"]),
    ]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interruption_leaves_nothing_behind(tmp_path, monkeypatch, error):
    save(tmp_path, 1)

    def save_and_fail(*arguments):
        raise error

    monkeypatch.setattr(checkpoints.os, "rename", save_and_fail)
    with pytest.raises(error):
        save(tmp_path, 2)
    assert [entry.name for entry in tmp_path.iterdir()] == ["step_00000001"]


def test_translating_does_not_read_the_optimizer(tmp_path):
    path = save(tmp_path, 1)
    truncate(path / "optimizer.npz")
    assert_equal(checkpoints.load(path, weights_only=True).weights, arrays(1))


def test_files_of_a_killed_average_are_removed_with_the_next(tmp_path):
    path = checkpoints.save_weights(tmp_path, "averaged", 1, arrays(1), {})
    for name in (".tmp_averaged", ".tmp_averaged.deleted", ".tmp_averaged_too"):
        shutil.copytree(path, tmp_path / name)
    checkpoints.save_weights(tmp_path, "averaged", 1, arrays(2), {})
    assert_equal(checkpoints.load(path).weights, arrays(2))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".lock", ".tmp_averaged_too", "averaged"]


def test_the_old_average_is_deleted_after_the_rename(tmp_path, monkeypatch):
    path = checkpoints.save_weights(tmp_path, "averaged", 1, arrays(1), {})
    delete, steps = shutil.rmtree, []

    def record_delete(doomed, **options):
        if doomed.name.endswith(".deleted"):
            steps.append(checkpoints.load(path).step)
        delete(doomed, **options)

    monkeypatch.setattr(checkpoints.shutil, "rmtree", record_delete)
    checkpoints.save_weights(tmp_path, "averaged", 2, arrays(2), {})
    assert steps == [2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"format": 3}, "format 3; this version of t2t_keras reads 2"), ({"checksum": None}, "damaged: 'checksum'")],
)
def test_a_state_of_a_different_version_or_without_a_checksum_is_an_error(tmp_path, changes, message):
    path = save(tmp_path, 1)
    document = {**json.loads((path / "state.json").read_text()), **changes}
    (path / "state.json").write_text(json.dumps({name: value for name, value in document.items() if value is not None}))
    with pytest.raises(InputError, match=message):
        checkpoints.load(path)


@pytest.mark.parametrize("name", ["", "a/b", "../a", ".hidden", "step_00000007", "best", "latest", "10"])
def test_invalid_names_of_averages(tmp_path, name):
    with pytest.raises(InputError, match="is not a valid name of a checkpoint"):
        checkpoints.save_weights(tmp_path, name, 1, arrays(1), {})
    assert list(tmp_path.iterdir()) == []


def test_steps_beyond_eight_digits_keep_their_order(tmp_path):
    for step in (99_999_999, 100_000_000, 7):
        save(tmp_path, step)
    (tmp_path / "step_x").mkdir()
    (tmp_path / "step_00000009").write_text("not a directory")
    assert checkpoints.steps(tmp_path) == [7, 99_999_999, 100_000_000]
    assert checkpoints.latest(tmp_path).step == 100_000_000

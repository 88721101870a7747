"""Checkpoints: complete or absent, with damage detected."""

import logging
import os
import resource
import shutil

import pytest

from t2t_keras.errors import InputError
from t2t_keras.runs import checkpoints
from tests.training.checkpoint_arrays import arrays, assert_equal, note_validation, save, truncate


def test_a_full_disk_keeps_the_last_valid_checkpoint(tmp_path):
    save(tmp_path, 1)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, limits[1]))  # makes larger writes fail, as on a full disk
    try:
        with pytest.raises(InputError, match=r"cannot save checkpoint .*step_00000002: .+; earlier checkpoints are"):
            save(tmp_path, 2, optimizer=arrays(2, size=2**18))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [entry.name for entry in tmp_path.iterdir()] == ["step_00000001"]
    assert_equal(checkpoints.latest(tmp_path).weights, arrays(1))
    save(tmp_path, 2)
    assert checkpoints.latest(tmp_path).step == 2


def test_files_of_a_killed_save_are_removed_with_the_next(tmp_path):
    save(tmp_path, 1)
    for name in (".tmp_step_00000002", ".tmp_step_00000001.deleted", ".tmp_averaged_last10"):
        shutil.copytree(tmp_path / "step_00000001", tmp_path / name)
    assert checkpoints.latest(tmp_path).step == 1
    save(tmp_path, 3)
    # A different program may be writing an average at this moment.
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [
        ".tmp_averaged_last10",
        "step_00000001",
        "step_00000003",
    ]


def flip_a_bit(path):
    contents = bytearray(path.read_bytes())
    contents[len(contents) // 2] ^= 1
    path.write_bytes(bytes(contents))


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("weights.npz", truncate),
        ("weights.npz", flip_a_bit),
        ("weights.npz", lambda path: path.unlink()),
        ("optimizer.npz", truncate),
        ("ema.npz", flip_a_bit),
        ("state.json", truncate),
        ("state.json", lambda path: path.write_text(path.read_text().replace('"batch": ', '"batch": 1'))),
        ("state.json", lambda path: path.write_text("")),
        ("state.json", lambda path: path.write_text("[1]")),
        ("state.json", lambda path: path.unlink()),
    ],
)
def test_a_damaged_checkpoint_falls_back_to_the_previous_one(tmp_path, caplog, name, damage):
    for step in (1, 2):
        save(tmp_path, step, ema=arrays(3))
    damage(tmp_path / "step_00000002" / name)
    with pytest.raises(InputError, match=name):
        checkpoints.load(tmp_path / "step_00000002")
    with caplog.at_level(logging.WARNING):
        assert checkpoints.latest(tmp_path).step == 1
    (record,) = caplog.records
    assert "step_00000002" in record.getMessage() and "step_00000001" in record.getMessage()
    damage(tmp_path / "step_00000001" / name)
    with pytest.raises(InputError, match=r"(?s)no usable checkpoint .*: .*step_00000002.*step_00000001"):
        checkpoints.latest(tmp_path)


def make_unreadable(path):
    """Makes reading a file fail for every user, although it exists, like a stale NFS handle."""
    path.unlink()
    path.symlink_to(path)


@pytest.mark.parametrize("name", ["weights.npz", "optimizer.npz", "state.json"])
def test_a_checkpoint_that_cannot_be_read_is_not_damaged(tmp_path, name):
    for step in (1, 2):
        save(tmp_path, step)
    make_unreadable(tmp_path / "step_00000002" / name)
    with pytest.raises(InputError, match=f"step_00000002/{name} cannot be read: Too many levels"):
        checkpoints.latest(tmp_path)


def test_no_checkpoint_is_deleted_or_skipped_without_reading_it(tmp_path):
    for step in (1, 2, 3):
        save(tmp_path, step)
    note_validation(tmp_path, 1)
    make_unreadable(tmp_path / "step_00000003" / "state.json")
    with pytest.raises(InputError, match=r"step_00000003/state.json cannot be read: Too many levels"):
        checkpoints.prune(tmp_path, keep=1, newest=3)
    assert checkpoints.steps(tmp_path) == [1, 2, 3]
    path = checkpoints.save_weights(tmp_path, "averaged_last2", 3, arrays(4), {})
    loaded = checkpoints.load(path)
    make_unreadable(path / "weights.npz")
    with pytest.raises(InputError, match=r"averaged_last2/weights.npz cannot be read: Too many levels"):
        checkpoints.resolve(tmp_path)
    with pytest.raises(InputError, match=r"averaged_last2/weights.npz cannot be read: Too many levels"):
        _ = loaded.weights


def test_a_directory_without_checkpoints(tmp_path):
    assert checkpoints.latest(tmp_path / "missing") is None
    assert checkpoints.steps(tmp_path) == []


def test_pruning_keeps_the_newest_and_the_best(tmp_path):
    for step in range(1, 7):
        save(tmp_path, step)
    for step, score in ((1, 30.0), (2, 31.5), (4, 31.5)):
        note_validation(tmp_path, step, "bleu", score)
    assert checkpoints.best(tmp_path) == checkpoints.ValidationRecord(2, "bleu", 31.5)
    assert checkpoints.prune(tmp_path, keep=2) == [1, 3, 4]
    assert checkpoints.steps(tmp_path) == [2, 5, 6]
    note_validation(tmp_path, 6, "bleu", 32.0)
    assert checkpoints.prune(tmp_path, keep=2) == [2]
    assert checkpoints.steps(tmp_path) == [5, 6]


def test_the_best_step_comes_from_the_newest_readable_checkpoint(tmp_path):
    assert checkpoints.best(tmp_path) is None
    save(tmp_path, 1)
    assert checkpoints.best(tmp_path) is None
    note_validation(tmp_path, 1, "loss", 3.0)
    state = checkpoints.load(save(tmp_path, 2)).state
    records = [{"step": 1, "metric": "loss", "value": 3.0}, {"step": 2, "metric": "loss", "value": 2.0}]
    checkpoints.replace_state(tmp_path, 2, {**state, checkpoints.VALIDATIONS: records})
    assert checkpoints.best(tmp_path) == checkpoints.ValidationRecord(2, "loss", 2.0)
    assert checkpoints.best(tmp_path, newest=1) == checkpoints.ValidationRecord(1, "loss", 3.0)
    truncate(tmp_path / "step_00000002" / "state.json")
    assert checkpoints.best(tmp_path) == checkpoints.ValidationRecord(1, "loss", 3.0)


def test_pruning_deletes_damaged_checkpoints(tmp_path):
    """Damaged ones must not count as the newest, or with one checkpoint to keep, only they would remain."""
    for step in (2, 4, 6):
        save(tmp_path, step)
    note_validation(tmp_path, 2)
    for step in (8, 9):
        save(tmp_path, step)
    note_validation(tmp_path, 9)
    assert checkpoints.prune(tmp_path, keep=1, newest=6) == [4, 8, 9]
    assert checkpoints.steps(tmp_path) == [2, 6]


def test_leftovers_of_a_killed_trainer_are_removed(tmp_path):
    checkpoints.remove_leftovers(tmp_path / "missing")
    path = save(tmp_path, 1)
    for name in (".tmp_step_00000002", ".tmp_step_00000001.deleted", ".tmp_averaged_last10"):
        shutil.copytree(path, tmp_path / name)
    (path / ".state.json.123.tmp").write_text("{")
    checkpoints.remove_leftovers(tmp_path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".tmp_averaged_last10", "step_00000001"]
    assert sorted(entry.name for entry in path.iterdir()) == ["optimizer.npz", "state.json", "weights.npz"]


def test_replacing_a_state_changes_no_other_file(tmp_path):
    path = save(tmp_path, 1)
    before = checkpoints.load(path)
    weights = before.weights
    checkpoints.replace_state(tmp_path, 1, {"validated": True})
    after = checkpoints.load(path)
    assert (after.step, after.state) == (1, {"validated": True})
    assert_equal(after.weights, weights)
    assert_equal(after.optimizer, before.optimizer)
    with pytest.raises(InputError, match="step_00000002 is not a checkpoint"):
        checkpoints.replace_state(tmp_path, 2, {})
    checkpoints.discard(tmp_path, 1)
    checkpoints.discard(tmp_path, 1)
    assert list(tmp_path.iterdir()) == []


def test_an_average_is_a_checkpoint(tmp_path):
    path = checkpoints.save_weights(tmp_path, "averaged_last2", 8, arrays(4), {"averaged": [7, 8]})
    loaded = checkpoints.load(path)
    assert (loaded.step, loaded.state) == (8, {"averaged": [7, 8], "order": 1})
    assert_equal(loaded.weights, arrays(4))
    with pytest.raises(InputError, match=r"optimizer\.npz does not exist"):
        _ = loaded.optimizer


def test_names_resolve_to_checkpoints(tmp_path, monkeypatch):
    folder = tmp_path / "run" / "checkpoints"
    for step in (10, 20, 30):
        save(folder, step)
    note_validation(folder, 20)
    average = checkpoints.save_weights(folder, "averaged_last2", 20, arrays(1), {})
    elsewhere = save(tmp_path / "other", 40)
    monkeypatch.chdir(tmp_path)
    expected = {
        "latest": folder / "step_00000030",
        "best": folder / "step_00000020",
        "10": folder / "step_00000010",
        "step_00000010": folder / "step_00000010",
        "averaged_last2": average,
        str(elsewhere): elsewhere,
    }
    assert {name: checkpoints.resolve(folder, name) for name in expected} == expected
    assert checkpoints.resolve(folder, "other/step_00000040").samefile(elsewhere)


def test_a_damaged_average_is_skipped(tmp_path, caplog):
    save(tmp_path, 8)
    for name in ("averaged_last2", "averaged_last4"):
        checkpoints.save_weights(tmp_path, name, 8, arrays(4), {})
    (tmp_path / "averaged_last2" / "weights.npz").write_bytes(b"nothing")
    assert checkpoints.resolve(tmp_path).name == "averaged_last4"
    assert "averaged_last2/weights.npz is damaged" in caplog.text
    (tmp_path / "averaged_last4" / "state.json").write_text("{")
    assert checkpoints.resolve(tmp_path).name == "step_00000008"
    with pytest.raises(InputError, match="averaged_last2/weights.npz is damaged"):
        checkpoints.load(checkpoints.resolve(tmp_path, "averaged_last2"))


def test_the_default_is_the_newest_average_until_training_continues(tmp_path):
    save(tmp_path, 20)
    assert checkpoints.resolve(tmp_path).name == "step_00000020"
    for name, step in (("averaged_old", 10), ("averaged_new", 20)):
        checkpoints.save_weights(tmp_path, name, step, arrays(1), {})
    os.utime(tmp_path / "averaged_new", (0, 0))  # as if a store or a changed clock had set the date
    checkpoints.save_weights(tmp_path, "averaged_newest", 20, arrays(1), {})
    os.utime(tmp_path / "averaged_newest", (0, 0))
    assert checkpoints.resolve(tmp_path).name == "averaged_newest"
    checkpoints.save_weights(tmp_path, "averaged_new", 20, arrays(1), {})
    os.utime(tmp_path / "averaged_new", (0, 0))
    assert checkpoints.resolve(tmp_path).name == "averaged_new"
    assert checkpoints.resolve(tmp_path, "latest").name == "step_00000020"
    save(tmp_path, 30)
    assert checkpoints.resolve(tmp_path).name == "step_00000030"
    for step in (20, 30):
        shutil.rmtree(tmp_path / checkpoints.step_name(step))
    assert checkpoints.resolve(tmp_path).name == "averaged_new"


@pytest.mark.parametrize("name", [None, "latest", "best", "25", "averaged_last9"])
def test_unknown_names_are_errors(tmp_path, name):
    with pytest.raises(InputError, match="steps there: none; names there: none"):
        checkpoints.resolve(tmp_path / "missing", name)
    if name in ("25", "averaged_last9"):
        for step in (10, 20):
            save(tmp_path, step)
        note_validation(tmp_path, 10)
        checkpoints.save_weights(tmp_path, "averaged_last2", 20, arrays(1), {})
        with pytest.raises(
            InputError, match=f"no checkpoint '{name}' in .*steps there: 10, 20; .*best, averaged_last2"
        ):
            checkpoints.resolve(tmp_path, name)
    shutil.rmtree(tmp_path / "step_00000010", ignore_errors=True)
    with pytest.raises(InputError, match="no checkpoint 'best' in .*names there: [^b]*$"):
        checkpoints.resolve(tmp_path, "best")

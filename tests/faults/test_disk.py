"""Full disks, read-only folders, and damaged checkpoints."""

import os
import re
import shutil
import signal

import pytest

from t2t_keras.runs import checkpoints
from t2t_keras.runs.run import Run
from tests.faults import disks, drill

pytestmark = pytest.mark.faults
every_disk = pytest.mark.parametrize("kind", ["small disk", "limited files"])


@every_disk
def test_full_disk(tmp_path, uninterrupted, kind):
    """Training ends with one line, and the same command resumes it when there is space again."""
    setup, expected = uninterrupted()
    with disks.open_disk(kind, tmp_path / "disk") as disk:
        model_dir = disk.folder / "run"
        training = drill.TrainingProcess(setup.command(model_dir))
        disk.watch(training)
        training.wait_for_step(60)
        disk.fill()
        status, text = training.end()
        assert status == 1, text
        assert re.match(r"error: .*(cannot save checkpoint|cannot be written|cannot write)", text.splitlines()[-1]), (
            text
        )
        assert "Traceback" not in text
        last_good = drill.newest(model_dir)
        assert 0 < last_good < setup.max_steps
        assert not drill.unfinished_checkpoints(model_dir)
        if kind == "small disk":  # limits of files end with the process
            resumed = drill.TrainingProcess(setup.command(model_dir))
            status, text = resumed.end()
            assert status == 1 and "Traceback" not in text, text
            disk.empty()
        drill.run_to_end(setup, model_dir)
        drill.assert_same_run(model_dir, expected, setup.max_steps)


def test_read_only_folder(tmp_path, uninterrupted):
    setup, _ = uninterrupted()
    model_dir = tmp_path / "run"
    model_dir.mkdir(mode=0o555)
    status, text = drill.TrainingProcess(setup.command(model_dir), before=disks.drop_permission_override()).end()
    assert (status, text) == (1, f"error: cannot train in {model_dir}: Permission denied")
    assert list(model_dir.iterdir()) == []


def test_folder_that_becomes_read_only(tmp_path, uninterrupted):
    """A full disk may be emptied, but permissions do not return, so training stops at the last checkpoint."""
    setup, expected = uninterrupted()
    model_dir = tmp_path / "run"
    training = drill.TrainingProcess(setup.command(model_dir), before=disks.drop_permission_override())
    training.wait_for_step(60)
    folder = Run(model_dir).checkpoints_path
    folder.chmod(0o555)
    status, text = training.end()
    folder.chmod(0o755)
    assert status == 1
    assert "Permission denied" in text.splitlines()[-1] and "Traceback" not in text
    assert 0 < drill.newest(model_dir) < setup.max_steps
    drill.run_to_end(setup, model_dir)
    drill.assert_same_run(model_dir, expected, setup.max_steps)


@pytest.fixture(scope="module")
def halfway(tmp_path_factory, uninterrupted):
    """A run that was killed after several checkpoints."""
    setup, _ = uninterrupted()
    model_dir = tmp_path_factory.mktemp("halfway") / "run"
    training = drill.TrainingProcess(setup.command(model_dir))
    training.wait_for_step(setup.max_steps // 2)
    training.send(signal.SIGKILL)
    training.end()
    assert len(checkpoints.steps(Run(model_dir).checkpoints_path)) >= 3
    return model_dir


def truncate(path):
    os.truncate(path, path.stat().st_size // 2)


def flip_a_bit(path):
    contents = bytearray(path.read_bytes())
    contents[len(contents) // 2] ^= 1
    path.write_bytes(bytes(contents))


def delete(path):
    path.unlink()


@pytest.mark.parametrize(
    "name, damage",
    [("weights.npz", truncate), ("optimizer.npz", flip_a_bit), ("ema.npz", delete), ("state.json", flip_a_bit)],
)
def test_damaged_checkpoint(tmp_path, uninterrupted, halfway, name, damage):
    setup, expected = uninterrupted()
    model_dir = tmp_path / "run"
    shutil.copytree(halfway, model_dir)
    folder = Run(model_dir).checkpoints_path
    *_, before, last = checkpoints.steps(folder)
    damage(folder / checkpoints.step_name(last) / name)
    lines = drill.run_to_end(setup, model_dir).lines
    (warning,) = [line for line in lines if "instead" in line]
    assert str(folder / checkpoints.step_name(last)) in warning
    assert warning.endswith(f"using {folder / checkpoints.step_name(before)} instead")
    drill.assert_same_run(model_dir, expected, setup.max_steps)


def test_all_checkpoints_damaged(tmp_path, uninterrupted, halfway):
    """Training does not start again, because the files might be recoverable."""
    setup, _ = uninterrupted()
    model_dir = tmp_path / "run"
    shutil.copytree(halfway, model_dir)
    folder = Run(model_dir).checkpoints_path
    for step in checkpoints.steps(folder):
        truncate(folder / checkpoints.step_name(step) / "weights.npz")
    (folder / f".tmp_{checkpoints.step_name(setup.max_steps)}").mkdir(exist_ok=True)  # an incomplete checkpoint
    before = drill.names(model_dir), sorted(path.name for path in folder.iterdir())
    status, text = drill.TrainingProcess(setup.command(model_dir)).end()
    assert (status, len(text.splitlines())) == (1, 1)
    assert text.startswith(f"error: no usable checkpoint in {folder}: ")
    for step in checkpoints.steps(folder):
        assert checkpoints.step_name(step) in text
    assert (drill.names(model_dir), sorted(path.name for path in folder.iterdir())) == before

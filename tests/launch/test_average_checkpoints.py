import pathlib
import subprocess

import numpy as np
import pytest

from t2t_keras.config import Config, TrainConfig, TransformerConfig
from t2t_keras.runs import checkpoints
from t2t_keras.runs.run import Run
from t2t_keras.text.tokenizer import vocabulary_files
from tests import programs
from tests.programs import assert_error
from tests.training.checkpoint_arrays import note_validation

pytestmark = pytest.mark.integration

ROOT = pathlib.Path(__file__).parents[2]


def average(*flags: str) -> subprocess.CompletedProcess:
    command = ["-m", "launch.average_checkpoints", *flags]
    return programs.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture
def make_run(tmp_path):
    """Creates a run with checkpoints at the given steps, whose weights equal their step."""

    def make(name: str, steps: list[int], vocabulary: bytes = b"vocabulary", train=None, epoch_steps=0, **model) -> Run:
        vocab = tmp_path / "some.model"
        vocab.write_bytes(vocabulary)
        run = Run(tmp_path / name)
        run.start(
            Config(model=TransformerConfig(**model), train=TrainConfig(**{"checkpoint_steps": 10, **(train or {})})),
            tmp_path,
            vocab,
        )
        for step in steps:
            weights = {"w": np.full((2, 3), step, np.float32)}
            state = {"epochs": step / epoch_steps} if epoch_steps else {}
            checkpoints.save(run.checkpoints_path, step, weights, {"m": np.zeros(2)}, state)
        return run

    return make


def test_the_last_checkpoints_are_averaged(make_run):
    run = make_run("run", [10, 20, 30, 50])
    result = average(f"--model_dir={run.path}", "--average_last=2")
    assert (result.returncode, result.stderr) == (0, "")
    assert "2 checkpoints, of steps 30, 50" in result.stdout
    averaged = checkpoints.load(run.checkpoints_path / "averaged_last2")
    assert averaged.step == 50
    np.testing.assert_array_equal(averaged.weights["w"], np.full((2, 3), 40, np.float32))
    assert checkpoints.resolve(run.checkpoints_path) == averaged.path
    assert checkpoints.steps(run.checkpoints_path) == [10, 20, 30, 50]


def test_the_last_epochs_are_averaged(make_run):
    run = make_run("run", [90, 100, 110, 120], epoch_steps=20)
    result = average(f"--model_dir={run.path}", "--average_epochs=1")
    assert (result.returncode, result.stderr) == (0, "")
    assert "2 checkpoints, of steps 110, 120" in result.stdout
    assert checkpoints.resolve(run.checkpoints_path).name == "averaged_1_epochs"
    result = average(f"--model_dir={run.path}", "--average_epochs=2.5")
    assert result.returncode == 0 and "of steps 90, 100, 110, 120" in result.stdout
    (line,) = result.stderr.splitlines()
    assert line.startswith("warning: the run's checkpoints cover only 2.0 of the 2.5 epochs; ")


def test_few_close_and_early_checkpoints_cause_warnings(make_run):
    result = average(f"--model_dir={make_run('run', [10, 20, 27, 30]).path}")
    assert result.returncode == 0 and "the run has only 4 of the 10 requested checkpoints" in result.stdout
    close, early = result.stderr.splitlines()
    assert close.startswith("warning: steps 20 and 27, 27 and 30 are closer together than train.checkpoint_steps=10")
    assert early.startswith("warning: the average covers steps 10 to 30, and early weights usually make it worse")
    by_minutes = make_run("by_minutes", [302, 399, 403, 501, 603], train={"checkpoint_minutes": 5.0})
    (line,) = average(f"--model_dir={by_minutes.path}", "--average_last=5").stderr.splitlines()
    assert line.startswith("warning: steps 399 and 403 are closer together than half the usual interval of this run")


def test_selected_checkpoints_and_output_name(make_run):
    run = make_run("run", [10, 20, 30])
    other = make_run("other", [40])
    chosen = f"20,{other.checkpoints_path / 'step_00000040'}"
    result = average(f"--model_dir={run.path}", f"--checkpoints={chosen}", "--output=mixed")
    assert (result.returncode, result.stderr) == (0, "")
    np.testing.assert_array_equal(checkpoints.load(run.checkpoints_path / "mixed").weights["w"], np.full((2, 3), 30))


def test_checkpoints_with_several_names_count_once(make_run):
    run = make_run("run", [20, 30])
    note_validation(run.checkpoints_path, 30)
    result = average(f"--model_dir={run.path}", "--checkpoints=20,30, best,latest")
    assert result.returncode == 0
    assert result.stderr.splitlines() == [
        "warning: --checkpoints names step_00000030 again as best; it counts once",
        "warning: --checkpoints names step_00000030 again as latest; it counts once",
    ]
    assert "averaged 2 checkpoints, of steps 20, 30\n" in result.stdout
    averaged = checkpoints.load(run.checkpoints_path / "averaged_2_chosen")
    np.testing.assert_array_equal(averaged.weights["w"], np.full((2, 3), 25, np.float32))
    assert len(averaged.state["averaged"]) == 2


def check_error(result: subprocess.CompletedProcess, *words: str) -> None:
    assert_error((result.returncode, result.stdout, result.stderr), *words)


def test_errors(make_run, tmp_path):
    run = make_run("run", [10, 20])
    flag = f"--model_dir={run.path}"
    check_error(average(f"--model_dir={tmp_path / 'nothing'}"), "nothing: no such folder")
    check_error(average(f"--model_dir={make_run('empty', []).path}"), "no checkpoints")
    check_error(average(flag, "--checkpoints=10,40"), "'40'", "steps there: 10, 20")
    check_error(average(flag, "--checkpoints=10,20,10"), "10 is given twice")
    check_error(
        average(flag, "--checkpoints=10,20", "--average_last=2"), "--average_last and --checkpoints cannot be combined"
    )
    check_error(average(flag, "--average_epochs=2"), "step_00000020 does not record its epoch")
    check_error(average(flag, "--checkpoints="), "--checkpoints= names no checkpoint")
    other = make_run("other", [60], num_heads=4)  # weights of the same shapes
    chosen = f"10,{other.checkpoints_path / 'step_00000060'}"
    check_error(average(flag, f"--checkpoints={chosen}"), "step_00000060", "model.num_heads: 8 -> 4")
    seeded = make_run("seeded", [60], train={"seed": 2})
    chosen = f"10,{seeded.checkpoints_path / 'step_00000060'}"
    check_error(average(flag, f"--checkpoints={chosen}"), "step_00000060", "train.seed: 1 -> 2")
    other_vocabulary = make_run("foreign", [70], b"other words")
    chosen = f"10,{other_vocabulary.checkpoints_path / 'step_00000070'}"
    check_error(average(flag, f"--checkpoints={chosen}"), "step_00000070", "a different vocabulary")
    source_vocabulary = make_run("of_sources", [80])
    vocabulary_files(source_vocabulary.vocab_path)[1].write_bytes(b"words of sources")
    chosen = f"10,{source_vocabulary.checkpoints_path / 'step_00000080'}"
    check_error(average(flag, f"--checkpoints={chosen}"), "step_00000080", "a different vocabulary")
    (run.checkpoints_path / "step_00000020" / "weights.npz").write_bytes(b"")
    check_error(average(flag, "--average_last=2"), "weights.npz is damaged")
    assert checkpoints.steps(run.checkpoints_path) == [10, 20]
    assert not (run.checkpoints_path / "averaged_last2").exists()

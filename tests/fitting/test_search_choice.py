"""The search settings that a validation set selects: comparison, selection and storage."""

import dataclasses
import json

import numpy as np
import pytest

from t2t_keras.config import DecodeConfig
from t2t_keras.errors import InputError
from t2t_keras.fitting import search_choice
from t2t_keras.fitting.search_choice import SearchChoice, SearchGrid
from t2t_keras.inference.translator import Translator
from t2t_keras.runs import checkpoints
from t2t_keras.runs.run import Run
from tests.inference import tiny

TEXT = ([f"a {number} b" for number in range(100)], [f"das ist die Zeile {number} hier" for number in range(100)])
PENALTIES = tuple({"length_normalization": "gnmt", "length_penalty": alpha} for alpha in (0.6, 1.0))
GRID = SearchGrid(None, (4, 1, 2), (*PENALTIES, {"length_normalization": "average"}))


@pytest.fixture
def run(tmp_path) -> Run:
    """A run with ten checkpoints, whose biases equal their step; its search has a beam of 2."""
    run = Run(tiny.make_run(tmp_path / "run"))
    weights = checkpoints.load(run.checkpoints_path / checkpoints.step_name(1)).weights
    for step in range(1, 11):
        biases = {name: np.full_like(array, step) for name, array in weights.items() if name.endswith("bias")}
        checkpoints.save(run.checkpoints_path, step, weights | biases, {}, {})
    return run


@pytest.fixture
def fake_translations(monkeypatch):
    """Replaces translations: `num_correct` gives the number of correct ones, from the mean step and the settings."""

    def set_quality(num_correct):
        class FakeTranslator(Translator):
            def translate(self, lines, on_progress=None, scored=True):
                del on_progress, scored
                (bias, *_) = [variable for variable in self.model.trainable_variables if variable.path.endswith("bias")]
                count = num_correct(float(np.mean(bias)), self.config)
                lines = [TEXT[1][TEXT[0].index(line)] if n < count else "nein" for n, line in enumerate(lines)]
                return [_Line(line) for line in lines]

        monkeypatch.setattr(search_choice, "Translator", FakeTranslator)

    return set_quality


@dataclasses.dataclass
class _Line:
    line: str


def choose(run: Run, grid: SearchGrid = GRID):
    reported: list[search_choice.Trial] = []
    choice = SearchChoice(run, TEXT, reported.append)
    best = choice.choose(grid)
    assert reported == choice.trials
    return best, choice.trials


def test_weights_are_selected_first_and_then_the_search_settings(run, fake_translations):
    """The mean of five checkpoints, steps 6 to 10, is best; then a beam of 4 with a length penalty of 1."""
    fake_translations(lambda step, decode: 50 + 10 * (step == 8) + decode.beam_size + 5 * (decode.length_penalty == 1))
    before = json.loads(run.config_path.read_text(encoding="utf-8"))
    best, trials = choose(run)
    assert (best.weights, best.decode.beam_size, best.decode.length_penalty) == ("averaged_last5", 4, 1.0)
    weights = [trial.weights for trial in trials]
    assert weights == ["step_00000010", "averaged_last5", "averaged_last10", *["averaged_last5"] * 6]
    settings = [(d.beam_size, d.length_normalization, d.length_penalty) for d in (trial.decode for trial in trials[3:])]
    assert settings == [
        *((1, "gnmt", 0.6), (2, "gnmt", 1.0), (2, "average", 0.6)),
        *((4, "gnmt", 0.6), (4, "gnmt", 1.0), (4, "average", 0.6)),
    ]
    after = json.loads(run.config_path.read_text(encoding="utf-8"))
    assert after["decode"].pop("beam_size") == 4 and after["decode"].pop("length_penalty") == 1.0
    for name in ("beam_size", "length_penalty"):
        before["decode"].pop(name)
    assert after == before
    average = checkpoints.load(checkpoints.resolve(run.checkpoints_path), weights_only=True)
    assert average.path.name == "averaged_last5"
    biases = [array for name, array in average.weights.items() if name.endswith("bias")]
    assert all((array == 8).all() for array in biases) and biases


def test_equal_scores_keep_the_settings_of_the_run(run, fake_translations):
    fake_translations(lambda step, decode: 50)
    config = run.config
    best, trials = choose(run)
    assert best == trials[0] and best.weights == "step_00000010"
    assert not search_choice._better(best._replace(score=50.004), best._replace(score=50.0))
    assert run.config == config
    assert checkpoints.resolve(run.checkpoints_path).name == "step_00000010"


def test_invalid_grids_are_rejected(run):
    with pytest.raises(InputError, match="--averages=11: .*/checkpoints has only 10 checkpoints"):
        choose(run, dataclasses.replace(GRID, averages=(3, 11)))
    with pytest.raises(InputError, match=r"decode\.sampling=true: samples are drawn"):
        GRID.searches(DecodeConfig(sampling=True))
    with pytest.raises(InputError, match=r"decode\.length_penalty must be a finite number of at least 0"):
        dataclasses.replace(GRID, penalties=({"length_penalty": -1.0},)).searches(DecodeConfig())

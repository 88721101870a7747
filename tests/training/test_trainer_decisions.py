"""Decisions of the training loop by numbers and clocks: stopping, saving, validating, and the best checkpoint."""

import json
import math
import signal
import time

import numpy as np
import pytest

from t2t_keras.errors import InputError
from t2t_keras.runs import checkpoints
from t2t_keras.runs.run import Run
from t2t_keras.training.step import StepMetrics, TrainingStep
from t2t_keras.training.trainer import _Pace
from t2t_keras.training.validation import Validation, Validator
from tests.training.tiny_training import assert_same_end, best_step, make_trainer, records, saved_steps, send_at, train


@pytest.mark.integration
def test_divergence_is_reported_with_the_last_valid_checkpoint(monkeypatch, tmp_path, data, scripted):
    del scripted
    settings = {"log_steps": 4, "steps_per_call": 3}  # Step 6 is the second of three in a call.
    train(tmp_path, data, max_steps=4, **settings)
    good_run = TrainingStep.run

    def run(self, batches, steps):
        metrics = good_run(self, batches, steps)
        numbers = np.arange(int(self.step) - steps + 1, int(self.step) + 1)
        return metrics._replace(gradient_norm=np.where(numbers == 6, np.inf, metrics.gradient_norm))

    monkeypatch.setattr(TrainingStep, "run", run)
    with pytest.raises(InputError) as error:
        train(tmp_path, data, **settings)
    message = str(error.value)
    assert len(message.splitlines()) == 1
    expected = ("step 6:", "loss 0.16", "gradient norm inf", "learning rate 0.006", "epoch 0, batch 5", "step_00000004")
    for words in expected:
        assert words in message
    assert saved_steps(tmp_path) == [4]
    assert [line["step"] for line in records(tmp_path, "train")] == [4]


@pytest.mark.integration
@pytest.mark.parametrize("keep_checkpoints", [1, 20])
def test_a_model_whose_validation_is_no_number_is_not_kept(tmp_path, data, scripted, keep_checkpoints):
    scripted(1.0, np.nan)
    with pytest.raises(InputError, match=r"step 8: validation loss nan.*step_00000004"):
        train(tmp_path, data, keep_checkpoints=keep_checkpoints)
    assert saved_steps(tmp_path) == [4]


def test_patience(tmp_path, data, scripted):
    scripted(3.0, 2.0, 2.5, 2.0, 1.0)
    outcome = train(tmp_path, data, patience=2, checkpoint_steps=1)
    assert outcome.step == 4
    assert "no better validation loss in 2 validations" in outcome.reason
    assert best_step(tmp_path) == 2
    # The same command does not continue; more patience does.
    assert train(tmp_path, data, patience=2, checkpoint_steps=1) == outcome
    assert train(tmp_path, data, patience=3, checkpoint_steps=1).step == 8
    assert best_step(tmp_path) == 5


def test_checkpoints_are_saved_in_fractions_of_an_epoch(tmp_path, data, scripted):
    """The interval is computed from the first epoch in whole updates, and stored."""
    del scripted
    settings = {"checkpoint_epochs": 0.4, "max_steps": 7, "checkpoint_steps": 999}
    trainer = make_trainer(tmp_path, data, **settings)
    updates = trainer.plans.plan(0).num_batches
    interval = round(0.4 * updates)
    assert Run(tmp_path).config.train.checkpoint_steps == interval < 7
    trainer.train()
    assert saved_steps(tmp_path) == [*range(interval, 7, interval), 7]
    for step in saved_steps(tmp_path)[:2]:
        state = checkpoints.load(Run(tmp_path).checkpoints_path / checkpoints.step_name(step)).state
        assert state["epochs"] == pytest.approx(step / updates)
    with pytest.raises(
        InputError, match=r"train\.checkpoint_epochs=0\.4 cannot be combined with train\.checkpoint_min"
    ):
        make_trainer(tmp_path, data, **settings, checkpoint_minutes=1.0)


@pytest.mark.integration
def test_a_validation_at_a_limit_does_not_count_for_patience(tmp_path, data, scripted):
    """Otherwise a training that is sometimes stopped by a limit would end earlier than an uninterrupted one."""
    settings = {"patience": 2, "checkpoint_steps": 2}
    scripted(3.0, 2.5, 2.8, 2.9, 2.0, 2.2, 2.3)
    train(tmp_path, data, max_steps=2, **settings)  # 3.0
    for step in (3, 5):  # 2.5, then 2.8 and 2.9
        outcome = train(tmp_path, data, max_steps=step, **settings)
        assert outcome == (step, "reached train.max_steps", 0)
    assert best_step(tmp_path) == 3  # It can still be the best.
    assert train(tmp_path, data, **settings).step == 10  # 2.0, 2.2, 2.3
    lines = [(line["step"], line["loss"]) for line in records(tmp_path, "valid")]
    assert lines == [(2, 3.0), (3, 2.5), (4, 2.8), (5, 2.9), (6, 2.0), (8, 2.2), (10, 2.3)]


@pytest.mark.integration
def test_max_minutes(tmp_path, data, scripted):
    del scripted
    assert train(tmp_path, data, max_minutes=1e-9) == (1, "reached train.max_minutes", 0)
    assert saved_steps(tmp_path) == [1]
    assert [line["step"] for line in records(tmp_path, "valid")] == [1]
    assert train(tmp_path, data, max_minutes=60.0).step == 12


def learning_rates(run_dir) -> list[float]:
    return [line["learning_rate"] for line in records(run_dir, "train")]


@pytest.mark.integration
def test_a_decay_ends_with_the_last_step_and_may_be_interrupted(tmp_path, data, monkeypatch):
    settings = {"decay_steps": 6, "max_steps": 12}
    train(tmp_path / "without", data, max_steps=12)
    train(tmp_path / "whole", data, **settings)
    shares = np.divide(learning_rates(tmp_path / "whole"), learning_rates(tmp_path / "without"))
    np.testing.assert_allclose(shares, [1] * 7 + [5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6], rtol=1e-6)
    send_at(monkeypatch, signal.SIGTERM, 9)
    assert train(tmp_path / "interrupted", data, **settings).step == 9
    assert train(tmp_path / "interrupted", data, **settings).step == 12
    assert_same_end(tmp_path / "interrupted", tmp_path / "whole", 12)


@pytest.mark.integration
def test_a_decay_ends_when_the_time_does(tmp_path, data, monkeypatch):
    """The time allows 11 steps, which is known after 6 of them."""
    monkeypatch.setattr(_Pace, "steps_left", lambda self, now: 5.4 if self._steps == 5 else math.inf)
    train(tmp_path / "without", data, max_steps=11)
    settings = {"decay_steps": 6, "max_minutes": 60.0, "max_steps": 1000}
    assert train(tmp_path / "whole", data, **settings) == (11, "reached train.max_minutes", 0)
    shares = np.divide(learning_rates(tmp_path / "whole"), learning_rates(tmp_path / "without"))
    np.testing.assert_allclose(shares, [1] * 6 + [5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6], rtol=1e-6)


@pytest.mark.integration
def test_validations_of_their_own(tmp_path, data, scripted):
    scripted(5.0, 4.0, 3.0, 2.0)
    train(tmp_path, data, checkpoint_steps=8, validation_steps=5)
    assert [line["step"] for line in records(tmp_path, "valid")] == [5, 10, 12]
    assert saved_steps(tmp_path) == [5, 8, 10, 12]  # Validated checkpoints are kept to be the best.


def test_divergence_before_any_checkpoint(monkeypatch, tmp_path, data, scripted):
    del scripted
    nan = np.full(3, np.nan, np.float32)
    monkeypatch.setattr(TrainingStep, "run", lambda *_: StepMetrics(nan, nan, nan, nan))
    with pytest.raises(InputError, match=r"step 1: loss nan.*last good checkpoint is none"):
        train(tmp_path, data)


def test_the_pace_of_a_training_tells_how_many_steps_are_left(monkeypatch):
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0)
    pace = _Pace(max_minutes=2)
    pace.add(1, now=1040.0)  # traces
    assert math.isinf(pace.steps_left(1040.0))
    pace.add(10, now=1050.0)
    pace.add(10, now=1060.0)
    assert pace.steps_left(1060.0) == pytest.approx(60)
    assert pace.steps_left(1130.0) == 0
    assert math.isinf(_Pace(0).steps_left(1000.0))


@pytest.mark.integration
def test_the_best_is_kept_beside_the_newest(tmp_path, data, scripted):
    scripted(3.0, 1.0, 2.0)
    train(tmp_path, data, checkpoint_steps=2, keep_checkpoints=2)
    assert saved_steps(tmp_path) == [4, 10, 12]
    assert best_step(tmp_path) == 4


@pytest.mark.integration
def test_checkpoints_by_minutes(tmp_path, data, scripted):
    del scripted
    train(tmp_path / "often", data, checkpoint_minutes=1e-9, log_steps=100)
    assert saved_steps(tmp_path / "often") == [3, 6, 9, 12]  # at each return to Python
    train(tmp_path / "never", data, checkpoint_minutes=1000.0, checkpoint_steps=2)
    assert saved_steps(tmp_path / "never") == [12]


@pytest.mark.integration
def test_best_by_bleu(monkeypatch, tmp_path, data, scripted):
    del scripted
    bleus = iter([10.0, 30.0, 20.0])
    monkeypatch.setattr(Validator, "validate", lambda self: Validation(1.0, np.e, next(bleus)))
    train(tmp_path, data, best_metric="bleu", validation_sentences=5)
    noted = checkpoints.best(Run(tmp_path).checkpoints_path)
    assert (noted.step, noted.metric, noted.value) == (8, "bleu", 30.0)
    assert [line["bleu"] for line in records(tmp_path, "valid")] == [10.0, 30.0, 20.0]
    last = json.loads((Run(tmp_path).checkpoints_path / "step_00000012" / "state.json").read_text(encoding="utf-8"))
    assert [record["value"] for record in last["state"][checkpoints.VALIDATIONS]] == [10.0, 30.0, 20.0]

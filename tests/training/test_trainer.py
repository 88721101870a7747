"""The training loop: its results, its end, and interruptions."""

import functools
import itertools
import pathlib
import signal
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras import schedules
from t2t_keras.data.batching import EpochPlans, Position
from t2t_keras.data.prepare import prepare
from t2t_keras.data.sources import corpora
from t2t_keras.data.sources.corpora import Corpus
from t2t_keras.errors import InputError
from t2t_keras.runs import checkpoints
from t2t_keras.runs.background import CheckpointWriter
from t2t_keras.runs.run import Run
from t2t_keras.training.step import TrainingStep
from t2t_keras.training.validation import Validator
from tests.training import tiny_training
from tests.training.tiny_training import (
    assert_same_end,
    best_step,
    make_trainer,
    records,
    saved_steps,
    send_at,
    train,
)

HERE = pathlib.Path(__file__).parent
SETTINGS = {"model": {"dropout_rate": 0.3}, "ema_decay": 0.9}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, data):
    model_dir = tmp_path_factory.mktemp("uninterrupted") / "run"
    outcome = train(model_dir, data, **SETTINGS)
    assert outcome == (12, "reached train.max_steps", 0)
    return model_dir


def epoch_plans(data) -> EpochPlans:
    corpus = data.split("train")
    return EpochPlans(corpus.source_lengths, corpus.target_lengths, tiny_training.TRAIN["tokens_per_batch"], 1)


def first_positions(data, count: int = 12) -> list[tuple[int, int]]:
    """Returns epoch and batch of the first steps."""
    positions = itertools.islice(epoch_plans(data).positions(Position()), count)
    return [(position.epoch, position.batch) for position in positions]


# ---- The results of a training ----


def test_the_run_has_everything(uninterrupted, data):
    run = Run(uninterrupted)
    assert run.vocab_path.read_bytes() == data.vocab_path.read_bytes()
    assert run.config.train.ema_decay == 0.9
    assert run.data_dir == data.directory
    assert run.curves_path.read_bytes().startswith(b"<?xml")
    assert any(run.tensorboard_path.iterdir())
    assert saved_steps(uninterrupted) == [4, 8, 12]
    with pytest.raises(InputError, match="a different configuration"):
        train(uninterrupted, data, model={"dropout_rate": 0.2}, ema_decay=0.9)


def test_each_step_is_logged_once_with_its_numbers(uninterrupted, data):
    lines = records(uninterrupted, "train")
    assert [line["step"] for line in lines] == list(range(1, 13))
    rates = [float(schedules.learning_rate(step, tiny_training.MODEL["d_model"], 20)) for step in range(1, 13)]
    np.testing.assert_allclose([line["learning_rate"] for line in lines], rates, rtol=1e-6)
    assert [line["tokens"] for line in lines] == [
        int(data.split("train").target_lengths[epoch_plans(data).plan(epoch).rows(batch)].sum())
        for epoch, batch in first_positions(data)
    ]
    losses = [line["loss"] for line in lines]
    assert np.mean(losses[-4:]) < np.mean(losses[:4])
    assert all(line["gradient_norm"] > 0 for line in lines)


def test_the_checkpoint_knows_where_the_data_stood(uninterrupted, data):
    saved = checkpoints.latest(Run(uninterrupted).checkpoints_path)
    assert (saved.state["epoch"], saved.state["batch"]) == first_positions(data, 13)[-1]
    assert saved.state["epoch"] == 1  # It passed the end of an epoch.
    assert saved.state["computed_with"] == {
        **{"backend": "tensorflow", "dtype_policy": "float32"},
        **{"tensorflow": tf.__version__, "keras": keras.__version__},
    }
    assert saved.ema is not None
    assert any((saved.ema[name] != array).any() for name, array in saved.weights.items())


def test_validations_go_with_checkpoints_and_the_best_is_noted(uninterrupted):
    lines = records(uninterrupted, "valid")
    assert [line["step"] for line in lines] == [4, 8, 12]
    best = min(lines, key=lambda line: line["loss"])
    noted = checkpoints.best(Run(uninterrupted).checkpoints_path)
    assert (noted.step, noted.metric, noted.value) == (best["step"], "loss", best["loss"])


# ---- Interruption and resumption ----


@pytest.mark.integration
def test_stopping_and_going_on_changes_nothing(tmp_path, data, uninterrupted):
    run_dir = tmp_path / "run"
    assert train(run_dir, data, **SETTINGS, max_steps=6).step == 6
    assert saved_steps(run_dir) == [4, 6]
    assert train(run_dir, data, **SETTINGS) == (12, "reached train.max_steps", 0)
    assert_same_end(run_dir, uninterrupted, 12)
    assert [line["step"] for line in records(run_dir, "valid")] == [4, 6, 8, 12]


@pytest.mark.integration
def test_a_signal_saves_first_and_nothing_is_lost(monkeypatch, tmp_path, data, uninterrupted):
    """The signal comes between two lines of the log; the second line includes the steps before the signal."""
    run_dir = tmp_path / "run"
    settings = {**SETTINGS, "log_steps": 5, "steps_per_call": 1}
    handler = signal.getsignal(signal.SIGTERM)
    send_at(monkeypatch, signal.SIGTERM, 7)
    outcome = train(run_dir, data, **settings)
    assert (outcome.step, outcome.signal) == (7, signal.SIGTERM)
    assert "SIGTERM" in outcome.reason and "same command" in outcome.reason
    assert saved_steps(run_dir) == [4, 7]
    assert signal.getsignal(signal.SIGTERM) == handler
    assert [line["step"] for line in records(run_dir, "valid")] == [4]  # no validation at the signal, to end quickly

    assert train(run_dir, data, **settings).step == 12
    steps = records(uninterrupted, "train")
    for line, part in zip(records(run_dir, "train"), (steps[:5], steps[5:10]), strict=True):
        tokens = sum(step["tokens"] for step in part)
        assert line["tokens"] == tokens
        assert line["loss"] == pytest.approx(sum(step["loss"] * step["tokens"] for step in part) / tokens, rel=1e-12)
    expected = tiny_training.state(uninterrupted, 12)
    for name, array in tiny_training.state(run_dir, 12).items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)


class KilledError(Exception):
    """Simulates the end of the process."""


@pytest.mark.integration
@pytest.mark.parametrize(
    "step, place",
    [
        (12, "validate"),
        pytest.param(12, "complete", marks=pytest.mark.slow),
        pytest.param(8, "validate", marks=pytest.mark.slow),
        pytest.param(8, "complete", marks=pytest.mark.slow),
    ],
)
def test_killed_during_a_validation_changes_nothing(monkeypatch, tmp_path, data, uninterrupted, place, step):
    """The training state is already saved, so that the next process starts with the validation."""
    owner = Validator if place == "validate" else CheckpointWriter
    real = getattr(owner, place)

    def killing(self, *arguments):
        if trainer.step == step:
            raise KilledError
        return real(self, *arguments)

    trainer = make_trainer(tmp_path, data, **SETTINGS, keep_checkpoints=1)
    with monkeypatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(owner, place, killing)
        trainer.train()
    assert set(saved_steps(tmp_path)) >= {step - 4, step}
    assert train(tmp_path, data, **SETTINGS, keep_checkpoints=1) == (12, "reached train.max_steps", 0)
    assert_same_end(tmp_path, uninterrupted, 12)
    assert records(tmp_path, "valid") == records(uninterrupted, "valid")
    states = [checkpoints.latest(Run(path).checkpoints_path).state for path in (tmp_path, uninterrupted)]
    for state in states:
        del state["config"]["train"]["keep_checkpoints"]
    assert states[0] == states[1]
    assert saved_steps(tmp_path) == sorted({best_step(uninterrupted), 12})
    assert best_step(tmp_path) == best_step(uninterrupted)


@pytest.mark.integration
def test_a_signal_at_the_last_step_changes_nothing(monkeypatch, tmp_path, data, scripted):
    scripted(3.0)
    send_at(monkeypatch, signal.SIGTERM, 12)
    assert train(tmp_path, data, checkpoint_steps=9) == (12, "reached train.max_steps", 0)
    assert saved_steps(tmp_path) == [9, 12]
    assert [line["step"] for line in records(tmp_path, "valid")] == [9, 12]


@pytest.mark.integration
def test_a_signal_when_a_validation_is_due_leaves_it_to_the_next_start(monkeypatch, tmp_path, data, scripted):
    scripted(3.0, 2.0, 1.0)
    with monkeypatch.context() as patch:
        send_at(patch, signal.SIGTERM, 8)
        assert train(tmp_path, data, steps_per_call=1).step == 8
    assert [line["step"] for line in records(tmp_path, "valid")] == [4]
    assert train(tmp_path, data, max_steps=8) == (8, "reached train.max_steps", 0)
    assert [line["step"] for line in records(tmp_path, "valid")] == [4, 8]
    assert best_step(tmp_path) == 8
    assert train(tmp_path, data, max_steps=8) == (8, "had reached train.max_steps before", 0)


@pytest.mark.integration
def test_a_finished_run_is_unchanged(monkeypatch, tmp_path, data, scripted):
    del scripted
    train(tmp_path, data, max_steps=4)
    before = Run(tmp_path).metrics_path.read_bytes()
    monkeypatch.setattr(TrainingStep, "run", None)  # No step may run.
    assert train(tmp_path, data, max_steps=4) == (4, "had reached train.max_steps before", 0)
    assert Run(tmp_path).metrics_path.read_bytes() == before


@pytest.mark.integration
def test_a_damaged_newest_checkpoint_is_passed_over(tmp_path, data, scripted):
    del scripted
    train(tmp_path, data, max_steps=8)
    (Run(tmp_path).checkpoints_path / "step_00000008" / "weights.npz").write_bytes(b"nothing")
    trainer = make_trainer(tmp_path, data)
    assert trainer.train().step == 12
    assert [line["step"] for line in records(tmp_path, "train")] == list(range(1, 13))
    assert trainer.position == trainer.plans.advance(Position(), 12)


@pytest.mark.integration
def test_where_every_checkpoint_is_damaged_a_half_written_one_stays(tmp_path, data, scripted):
    """The partial checkpoint may be recoverable; it is removed once a checkpoint has been loaded."""
    del scripted
    train(tmp_path, data, max_steps=4)
    folder = Run(tmp_path).checkpoints_path
    weights, half_written = folder / "step_00000004" / "weights.npz", folder / ".tmp_step_00000008"
    contents = weights.read_bytes()
    weights.write_bytes(b"nothing")
    half_written.mkdir()
    with pytest.raises(InputError, match="no usable checkpoint in"):
        train(tmp_path, data)
    assert half_written.is_dir()
    weights.write_bytes(contents)
    train(tmp_path, data, max_steps=4)
    assert not half_written.exists()


# ---- The end of a training ----


def test_settings_may_change_until_something_is_saved(tmp_path, data, scripted):
    """The messages about too little memory or too small batches ask for this."""
    del scripted
    with pytest.raises(InputError, match="train.tokens_per_batch=5 must be at least"):
        train(tmp_path, data, tokens_per_batch=5)
    train(tmp_path, data, max_steps=4)
    with pytest.raises(InputError, match="train.tokens_per_batch: 100 -> 90"):
        train(tmp_path, data, tokens_per_batch=90)
    assert Run(tmp_path).config.train.tokens_per_batch == 100


@pytest.mark.parametrize("has_files", [True, False])
def test_different_text_with_the_same_lengths_is_rejected(tmp_path, data, scripted, has_files):
    del scripted
    run, folder = Run(tmp_path / "run"), data.directory.parent
    other = str.maketrans("bdfgk", "dfgkb")
    pairs: dict[str, dict[str, list]] = {"same": {}, "other": {}}
    for split in ("train", "valid"):
        sides = [(folder / f"{split}.{side}").read_text(encoding="utf-8").splitlines() for side in ("source", "target")]
        pairs["same"][split] = list(zip(*sides, strict=True))
        pairs["other"][split] = [tuple(side.translate(other) for side in pair) for pair in pairs["same"][split]]
    prepared = {}
    for name, splits in pairs.items():
        corpus = Corpus({split: functools.partial(iter, lines) for split, lines in splits.items()})
        if has_files:
            paths = {}
            for split, lines in splits.items():
                paths[split] = tmp_path / f"{name}.{split}.tsv", None
                paths[split][0].write_text("".join(f"{source}\t{target}\n" for source, target in lines), "utf-8")
            corpus = corpora.files(paths)
        prepared[name] = prepare(corpus, data.config, tmp_path / name, lambda line: None, vocab_from=data.vocab_path)
    lengths = [(each.split("train").source_lengths, each.split("train").target_lengths) for each in prepared.values()]
    np.testing.assert_array_equal(*lengths)
    train(run.path, prepared["same"], max_steps=1)
    with pytest.raises(InputError, match=r"other has \d+ pairs \(.*\), text \w+; use a different --model_dir"):
        make_trainer(run.path, prepared["other"])
    make_trainer(run.path, prepared["same"])


@pytest.mark.integration
def test_memory_that_runs_out_on_the_largest_batch(monkeypatch, tmp_path, data):
    shapes = []

    def run(self, batches, steps):
        shapes.append((next(batches)["source"].shape, steps))
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor with shape[1,2]\nand a trace")

    monkeypatch.setattr(TrainingStep, "run", run)
    with pytest.raises(InputError) as error:
        train(tmp_path, data, accumulation_steps=2)
    message = str(error.value)
    assert len(message.splitlines()) == 1
    assert "lower train.tokens_per_batch=100" in message and "train.accumulation_steps=2" in message
    assert "OOM when allocating" in message
    rows, length = shapes[0][0]
    assert f"{rows} rows of {length} source" in message
    assert rows * length >= 0.9 * epoch_plans(data).plan(0).shapes[:, :2].prod(axis=1).max()
    assert saved_steps(tmp_path) == []


@pytest.mark.integration
def test_the_largest_batch_leaves_no_trace(monkeypatch, tmp_path, data):
    """The first step starts from the weights before the trial step."""
    states = []
    run = TrainingStep.run

    def recording(self, batches, steps):
        states.append((int(self.step), self.read()))
        return run(self, batches, steps)

    monkeypatch.setattr(TrainingStep, "run", recording)
    train(tmp_path, data, max_steps=1)
    trials = len(states) - 1
    assert trials >= 1
    (first_step, first), (last_step, last) = states[0], states[-1]
    assert first_step == last_step == 0
    for part, arrays in first.items():
        for name, array in arrays.items():
            np.testing.assert_array_equal(last[part][name], array)


def test_deterministic_operations_are_asked_for_when_they_are_wanted(monkeypatch, tmp_path, data):
    calls = []
    monkeypatch.setattr(tf.config.experimental, "enable_op_determinism", lambda: calls.append("enabled"))
    make_trainer(tmp_path, data)
    assert calls == []
    make_trainer(tmp_path, data, deterministic=True)
    assert calls == ["enabled"]


def test_xla_needs_static_shapes(tmp_path, data):
    with pytest.raises(InputError, match=r"train.jit_compile=true needs train.static_shapes=true"):
        make_trainer(tmp_path / "run", data, jit_compile=True)
    assert not (tmp_path / "run").exists()


# ---- Checkpoints ----


@pytest.mark.integration
def test_a_checkpoint_is_of_its_step_however_late_it_is_written(monkeypatch, tmp_path, data, uninterrupted):
    """The arrays are copies: steps that follow while the writer is slow do not change them."""
    trainer = make_trainer(tmp_path, data, **SETTINGS)
    save, late = checkpoints.save, []

    def dawdle(directory, step, *arguments):
        deadline = time.monotonic() + 60
        while trainer.step == step < 12 and time.monotonic() < deadline:
            time.sleep(0.01)
        late.append(trainer.step - step)
        return save(directory, step, *arguments)

    monkeypatch.setattr(checkpoints, "save", dawdle)
    assert trainer.train().step == 12
    assert late[0] > 0 and late[1] > 0
    for step in (4, 8, 12):
        expected = tiny_training.state(uninterrupted, step)
        for name, array in tiny_training.state(tmp_path, step).items():
            np.testing.assert_array_equal(array, expected[name], err_msg=f"{name} of step {step}")

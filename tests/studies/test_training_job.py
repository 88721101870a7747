"""The record of a training in a study: comparison with the current settings, averages and initialisation."""

import dataclasses
import json
import types

import numpy as np
import pytest

from t2t_keras.config import Config, TrainConfig, TransformerConfig
from t2t_keras.errors import InputError
from t2t_keras.runs import checkpoints
from t2t_keras.runs.run import Run
from t2t_keras.studies import phases
from t2t_keras.studies.data_facts import DataFacts
from t2t_keras.studies.performing import answer_of_phase
from t2t_keras.studies.states import state, write_record
from t2t_keras.studies.training_job import EnsembleJob, TrainingJob
from t2t_keras.training.trainer import Outcome
from tests.training.checkpoint_arrays import note_validation

CONFIG = Config(model=TransformerConfig(vocab_size=9), train=TrainConfig(max_steps=20))
FIRST = TrainingJob(name="one/seed_1", config=CONFIG, data_dir="/data", vocabulary="a")
MORE = TrainingJob(
    name="more/seed_1", needs=("one/seed_1",), config=CONFIG, data_dir="/data", vocabulary="a", begins_from=FIRST
)
BOTH = EnsembleJob(name="one/ensemble", members=(FIRST, MORE))


def changed(job, **train):
    return dataclasses.replace(job, config=dataclasses.replace(CONFIG, train=TrainConfig(**train)))


@pytest.fixture
def study_dir(tmp_path):
    """One job has a record and a run with a checkpoint; the other has only a record."""
    (tmp_path / "vocab").write_bytes(b"vocabulary")
    Run(tmp_path / "one/seed_1").start(CONFIG, "/data", tmp_path / "vocab")
    checkpoints.save_weights(tmp_path / "one/seed_1/checkpoints", "averaged_last5", 12, {}, {})
    for job in (FIRST, MORE, BOTH):
        write_record(job, tmp_path, {"score": 1.5})
    return tmp_path


def save_step(study_dir, step):
    folder = study_dir / "one/seed_1/checkpoints"
    folder.joinpath(checkpoints.step_name(step)).mkdir(parents=True)


def test_a_record_matches_the_same_settings(study_dir):
    for job in (FIRST, MORE, BOTH):
        assert state(job, study_dir) == ("finished", "finished", {"score": 1.5})


def test_changed_averages_and_durations_reopen_a_job(study_dir):
    save_step(study_dir, 20)
    assert state(changed(FIRST, max_steps=30), study_dir)[:2] == ("outdated", "train.max_steps: 20 -> 30")
    other = dataclasses.replace(MORE, begins_from=changed(FIRST, max_steps=20, seed=7))
    assert state(other, study_dir)[:2] == ("outdated", "one/seed_1: train.seed: 1 -> 7")
    alone = dataclasses.replace(MORE, begins_from=None)
    assert state(alone, study_dir)[:2] == ("outdated", "begins_from: one/seed_1 -> none")
    fewer = dataclasses.replace(BOTH, members=(FIRST,))
    assert state(fewer, study_dir)[:2] == ("outdated", "members: one/seed_1, more/seed_1 -> one/seed_1")
    retrained = dataclasses.replace(BOTH, members=(changed(FIRST, max_steps=20, clip_norm=1.0), MORE))
    assert state(retrained, study_dir)[:2] == ("outdated", "one/seed_1: train.clip_norm: 0.0 -> 1.0")


def test_changes_that_a_run_cannot_follow_conflict(study_dir):
    save_step(study_dir, 20)
    assert state(changed(FIRST, max_steps=20, seed=2), study_dir)[:2] == ("conflicting", "train.seed: 1 -> 2")
    assert state(changed(FIRST, max_steps=8), study_dir)[:2] == ("conflicting", "train.max_steps: 20 made -> 8")
    other = dataclasses.replace(FIRST, begins_from=MORE)
    assert state(other, study_dir)[:2] == ("conflicting", "begins_from: none -> more/seed_1")


def test_a_run_initialised_from_a_retrained_job_conflicts(study_dir):
    folder = study_dir / "more/seed_1"
    Run(folder).start(CONFIG, "/data", study_dir / "vocab", {"model_dir": "one/seed_1"})
    phases._initial_checkpoint(MORE, study_dir)
    (folder / "checkpoints" / checkpoints.step_name(20)).mkdir(parents=True)
    assert state(MORE, study_dir).kind == "finished"
    searched = dataclasses.replace(CONFIG, decode=dataclasses.replace(CONFIG.decode, beam_size=7))
    other_search = dataclasses.replace(MORE, begins_from=dataclasses.replace(FIRST, config=searched))
    assert state(other_search, study_dir)[:2] == ("outdated", "one/seed_1: decode.beam_size: 4 -> 7")
    retrained = dataclasses.replace(MORE, begins_from=changed(FIRST, max_steps=20, seed=7))
    assert state(retrained, study_dir)[:2] == ("conflicting", "one/seed_1: train.seed: 1 -> 7")


def test_needing_more_checkpoints_than_were_kept_conflicts(study_dir):
    save_step(study_dir, 20)
    job = changed(FIRST, max_steps=20, keep_checkpoints=6)
    assert state(job, study_dir)[:2] == ("conflicting", "train.keep_checkpoints: 5 -> 6")
    assert state(changed(FIRST, max_steps=20, keep_checkpoints=4), study_dir).kind == "outdated"
    assert state(changed(FIRST, max_steps=30, keep_checkpoints=6), study_dir).kind == "outdated"


@pytest.mark.parametrize(
    ("steps", "train", "averaged"),
    [
        ([10, 20, 30, 35, 40, 45], {}, [30, 40, 45]),
        ([20, 110, 113, 120], {}, [110, 120]),  # The best one is old, and a signal saved one.
        ([97, 193, 290, 400], {"checkpoint_minutes": 1.0}, [193, 290, 400]),
    ],
)
def test_an_average_is_of_checkpoints_saved_on_time(tmp_path, monkeypatch, steps, train, averaged):
    run = Run(tmp_path)
    for step in steps:
        checkpoints.save(run.checkpoints_path, step, {"w": np.full(1, step, np.float32)}, {}, {})
    config = dataclasses.replace(CONFIG, train=TrainConfig(checkpoint_steps=10, keep_checkpoints=3, **train))
    run.config_path.write_text(json.dumps(config.to_dict()))
    phases._average(run, config, "averaged_last3")
    average = checkpoints.load(run.checkpoints_path / "averaged_last3", weights_only=True)
    average_path = [int(path.rpartition("_")[2]) for path in average.state["averaged"]]
    assert average_path == averaged
    np.testing.assert_allclose(average.weights["w"], np.mean(averaged), rtol=1e-6)


@pytest.mark.parametrize(
    ("best", "averaged"),
    [(80, [70, 80, 90]), (120, [100, 110, 120]), (77, [70, 80, 90]), (10, [60, 70, 80])],
)
def test_an_average_is_around_the_best_checkpoint_if_patience_ends_training(tmp_path, best, averaged):
    run = Run(tmp_path)
    for step in (10, 60, 70, 77, 80, 90, 100, 103, 110, 120):  # The others have been deleted.
        checkpoints.save(run.checkpoints_path, step, {"w": np.full(1, step, np.float32)}, {}, {})
    note_validation(run.checkpoints_path, best)
    train = TrainConfig(checkpoint_steps=10, keep_checkpoints=3, validation_steps=20, patience=2)
    job = changed(FIRST, **dataclasses.asdict(train))
    run.config_path.write_text(json.dumps(job.config.to_dict()))
    assert phases._average(run, job.config, job.average) == best
    average = checkpoints.load(run.checkpoints_path / "averaged_around_best3", weights_only=True)
    assert [int(path.rpartition("_")[2]) for path in average.state["averaged"]] == averaged


def test_jobs_that_need_weights_do_not_start_without_them(study_dir, monkeypatch):
    monkeypatch.setattr(phases, "make_strategy", lambda name: None)
    monkeypatch.setattr(phases, "PreparedData", types.SimpleNamespace(open=lambda directory: None))
    (study_dir / "one/seed_1/checkpoints/averaged_last5").rename(study_dir / "moved")
    for needs_them in (lambda: phases.train(MORE, study_dir), lambda: phases.evaluate_ensemble(BOTH, study_dir)):
        with pytest.raises(
            InputError, match=r"one/seed_1 has a record but no weights; to train it, delete its row\.json"
        ):
            needs_them()


@pytest.mark.parametrize("text", ["{", "[]", '{"settings": {}}', '{"settings": 1, "results": {}}'])
def test_a_damaged_record_is_an_error(study_dir, text):
    (study_dir / "one/seed_1/row.json").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"row\.json is damaged: .*; to finish the row again, delete it"):
        state(FIRST, study_dir)


def test_a_damaged_record_of_the_initial_weights_is_an_error(study_dir):
    folder = study_dir / "more/seed_1"
    Run(folder).start(CONFIG, "/data", study_dir / "vocab", {"model_dir": "one/seed_1"})
    (folder / "checkpoints" / checkpoints.step_name(20)).mkdir(parents=True)
    (folder / "begins_from.json").write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match=r"begins_from\.json is damaged: "):
        state(MORE, study_dir)


def test_a_training_is_initialised_from_another_average_once(study_dir, monkeypatch):
    initial_checkpoints = []

    def trainer(run, config, data, strategy, init_from):
        initial_checkpoints.append(init_from)
        raise KeyboardInterrupt

    monkeypatch.setattr(phases, "Trainer", trainer)
    monkeypatch.setattr(phases, "make_strategy", lambda name: None)
    monkeypatch.setattr(phases, "PreparedData", types.SimpleNamespace(open=lambda directory: None))
    for job in (FIRST, MORE, dataclasses.replace(FIRST, begins_from=MORE)):
        with pytest.raises(KeyboardInterrupt):
            phases.train(job, study_dir)
    # The run of the last one exists, so that it is resumed.
    assert initial_checkpoints == [None, (study_dir / "one/seed_1", "averaged_last5"), None]


def test_the_cost_of_a_training_includes_the_one_before_it(study_dir, monkeypatch):
    folder = study_dir / "more/seed_1"
    write_record(FIRST, study_dir, {"hours": 1.0, "flops_by_count": None, "flops_by_time": 7200.0})
    monkeypatch.setattr(phases, "num_cores", lambda: 2)
    state = {"interval": [9.0, 30.0, 1000.0, {}, 1600.0]}
    checkpoints.save(folder / "checkpoints", 20, {"w": np.zeros(1)}, {}, state)
    lines = [{"step": 9 * n, "kind": "train", "tokens": 60, "processor_seconds": 1000.0} for n in (1, 2)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    data = DataFacts(vocab_size=9, pairs=2, source_tokens=30, target_tokens=10)
    monkeypatch.setattr(phases.DataFacts, "of", lambda data: data)
    monkeypatch.setattr(phases, "PreparedData", types.SimpleNamespace(open=lambda directory: data))
    monkeypatch.setattr(phases, "make_strategy", lambda name: types.SimpleNamespace(num_replicas_in_sync=2))
    monkeypatch.setattr(phases, "update_stored_rate", lambda *arguments: 3.0)
    trainer = types.SimpleNamespace(train=lambda: Outcome(20, "", 0))
    monkeypatch.setattr(phases, "Trainer", lambda *arguments: trainer)
    results = phases.train(MORE, study_dir)
    assert (results["updates"], results["target_tokens"], results["devices"]) == (20, 150, 2)
    assert results["hours"] == pytest.approx(1800 / 3600 + 1)
    assert results["flops_by_time"] == pytest.approx(1800 * 2 * 3 + 7200)
    assert results["flops_by_count"] is None
    # Without new updates, the record of the device does not change.
    monkeypatch.setattr(phases, "make_strategy", lambda name: types.SimpleNamespace(num_replicas_in_sync=1))
    assert phases.train(MORE, study_dir) == results
    # The results of a longer training that was killed before its record was written are recorded.
    note = json.loads((folder / "training.json").read_text())
    (folder / "training.json").write_text(json.dumps({**note, "updates": 12, "target_tokens": 1}))
    assert phases.train(MORE, study_dir)["target_tokens"] == 150
    (folder / "training.json").unlink()
    alone = phases.train(dataclasses.replace(MORE, begins_from=None), study_dir)
    assert alone["hours"] == 0.5
    # Of 40 tokens, 10 are targets: each target stands for 2 pairs of tokens, in sentences of 10.
    assert alone["flops_by_count"] == pytest.approx(150 * 2 * sum(CONFIG.model.training_flops(10).values()))


def test_a_training_ended_by_a_signal_has_no_results(study_dir, monkeypatch):
    monkeypatch.setattr(phases, "PreparedData", types.SimpleNamespace(open=lambda directory: None))
    monkeypatch.setattr(phases, "make_strategy", lambda name: None)
    trainer = types.SimpleNamespace(train=lambda: Outcome(3, "stopped", 15))
    monkeypatch.setattr(phases, "Trainer", lambda *arguments: trainer)
    answer = answer_of_phase("t2t_keras.studies.phases:train", FIRST, study_dir)
    assert answer == ("stopped", 15)

"""The steps of a fit that need no training."""

import json
import signal
import sys
from types import SimpleNamespace

import pytest

from t2t_keras import evaluation
from t2t_keras.config import DataConfig, DecodeConfig
from t2t_keras.errors import InputError
from t2t_keras.export import writing
from t2t_keras.export_contract import CONFIG_FILE, GRAPH_FILE
from t2t_keras.fitting import fit_steps, speed
from t2t_keras.fitting.fit_steps import FitSteps, Places, format_choices, missing_for_serving
from t2t_keras.fitting.model_card import write_card
from t2t_keras.fitting.search_choice import SearchChoice, Trial
from t2t_keras.planning.fit_rules import GIVEN, Choice, choose
from t2t_keras.runs import checkpoints
from t2t_keras.runs.run import Run
from t2t_keras.text.tokenizer import VocabularySizeError
from t2t_keras.training import trainer
from t2t_keras.training.trainer import Outcome
from tests.inference import tiny


def test_a_folder_of_a_version_with_different_choices_is_rejected(tmp_path):
    steps = FitSteps(Places(tmp_path / "data", tmp_path / "run", tmp_path / "serving"), print)
    steps.record.update(choices=[{"name": "preset", "value": "tiny", "reason": "usual"}])
    assert steps.choice("preset") == "tiny"
    with pytest.raises(InputError, match=r"run was started by a different version, which did not choose updates"):
        steps.choice("updates")


@pytest.mark.parametrize(
    ("metric", "checkpoint_names"), [("bleu", ["step_00000001", "step_00000002"]), ("loss", ["step_00000002"])]
)
def test_the_weights_with_the_best_validation_are_kept(tmp_path, monkeypatch, metric, checkpoint_names):
    """With BLEU, the mean of both checkpoints has the larger value; with the loss, the newest checkpoint wins."""
    run = Run(tiny.make_run(tmp_path / "run"))
    config = json.loads(run.config_path.read_text())
    config["train"].update(best_metric=metric, validation_sentences=1)
    run.config_path.write_text(json.dumps(config))
    weights = checkpoints.load(run.checkpoints_path / checkpoints.step_name(1)).weights
    checkpoints.save(run.checkpoints_path, 2, weights, {}, {})

    def fake_validation(self, translator, config, steps):
        return SimpleNamespace(name="some", steps=steps, arrays=weights, value=float(len(steps)))

    monkeypatch.setattr(FitSteps, "_validate", fake_validation)
    steps = FitSteps(Places(tmp_path / "data", run.path, tmp_path / "serving"), print)
    steps.choose_weights()
    assert steps.record["chosen"]["checkpoints"] == checkpoint_names


@pytest.mark.parametrize(
    ("overrides", "decode", "tried", "penalty"),
    [
        ([], {"beam_size": 3}, [0.6, 1.0, 1.4], 1.0),
        ([], {"beam_size": 1}, [], 0.6),
        ([], {"sampling": True, "beam_size": 1}, [], 0.6),
        ([Choice("decode.length_penalty", "0.6", GIVEN)], {"beam_size": 3}, [], 0.6),
        ([], {"beam_size": 3, "length_normalization": "average"}, [], 0.6),
    ],
)
def test_the_length_penalty_with_the_best_validation_is_stored(
    tmp_path, monkeypatch, overrides, decode, tried, penalty
):
    scores, trials = {0.6: 30.0, 1.0: 31.04, 1.4: 30.7}, []

    def fake_try(self, weights, settings):
        trials.append((settings.beam_size, settings.length_penalty))
        self.trials.append(Trial(weights, settings, scores[settings.length_penalty], 0.0))
        return self.trials[-1]

    monkeypatch.setattr(SearchChoice, "_try", fake_try)
    run = Run(tiny.make_run(tmp_path / "run"))
    run.store_decoding(DecodeConfig(**decode))
    weights = checkpoints.load(run.checkpoints_path / checkpoints.step_name(1)).weights
    checkpoints.save_weights(run.checkpoints_path, fit_steps.CHOSEN, 1, weights, {})
    steps, reported = start_steps(tmp_path, overrides)
    steps.data.text = lambda split: (["a dog"], ["ein Hund"]) if split == "valid" else None
    for _ in range(2):
        steps.choose_search()
        assert steps.translator.config == run.config.decode
    assert trials == [(decode["beam_size"], value) for value in tried], "each search is tried once"
    assert run.config.decode.length_penalty == penalty
    line = "chosen: length penalty 1, by bleu: 0.6 30.0, 1 31.0, 1.4 30.7"
    assert reported == ([line] * 2 if tried else [])


def test_the_minutes_of_all_starts_add_up(tmp_path):
    steps = FitSteps(Places(tmp_path / "data", tmp_path / "run", tmp_path / "serving"), print)
    with steps.preparing():
        steps.record.update(preparing_minutes=7.0)
    with steps.preparing():
        pass
    assert steps.record["preparing_minutes"] >= 7.0


@pytest.mark.parametrize(("seconds", "minutes"), [(90.0, 8.0), (500.0, 18)])
def test_suggested_minutes_exceed_the_time_that_training_took(tmp_path, seconds, minutes):
    steps = FitSteps(Places(tmp_path / "data", tmp_path / "run", tmp_path / "serving"), print)
    steps.run.path.mkdir()
    steps.run.metrics_path.write_text(json.dumps({"kind": "train", "step": 9, "seconds": seconds}) + "\n")
    steps.record.update(trained_for=4.0)
    assert steps.suggested_minutes == minutes


class Lines(list):
    """The lines that a fit has reported."""

    def contain(self, text):
        return any(text in line for line in self)


def start_steps(folder, overrides=(), **record):
    """Returns steps with prepared text that took two minutes, and the lines they report."""
    defaults = {"preset": "tiny", "updates": record.pop("updates", 1000), "data.vocab_size": 2000}
    choices = [Choice(name, value, "usual") for name, value in defaults.items()]
    reported = Lines()
    steps = FitSteps(Places(folder / "data", folder / "run", folder / "serving" / "mine"), reported.append)
    values = {"choices": [vars(choice) for choice in (*choices, *overrides)], "minutes": 10.0, "preparing_minutes": 2.0}
    steps.record.update(**{**values, **record})
    steps.strategy = None
    steps.data = SimpleNamespace(
        config=DataConfig(vocab_size=300),
        counts={"test": {"kept": 1234}},
        output_limit={"max_length_offset": 7},
        split_by="lines",
        tokenizer=SimpleNamespace(sizes={"vocab_size": 300}),
    )
    return steps, reported


@pytest.fixture
def fake_trainer(monkeypatch):
    """Records the configurations of trainings, which end with the last entry of `outcomes`."""
    configs = []

    class FakeTrainer:
        outcomes = [Outcome(1000, "reached train.max_steps", 0)]

        def __init__(self, run, config, data, strategy):
            configs.append(config)

        def train(self):
            return self.outcomes[-1]

    monkeypatch.setattr(trainer, "Trainer", FakeTrainer)
    return SimpleNamespace(configs=configs, outcomes=FakeTrainer.outcomes)


@pytest.mark.parametrize(
    ("changes", "minutes", "limits"),
    [
        ({}, 10.0, (8.0, 1_000_000, 200)),
        ({"preparing_minutes": 9.0}, 10.0, (5.0, 1_000_000, 200)),
        ({}, 20.0, (18.0, 1_000_000, 400)),
        ({"seconds": 180.0}, 10.0, (5.0, 1_000_000, 200)),
        ({"seconds": 6000.0}, 10.0, (0.01, 1_000_000, 200)),
        ({"updates": 400}, 10.0, (8.0, 1_000_000, 80)),
        ({"updates": 399}, 10.0, (0.0, 400, 80)),
        ({"updates": 399, "overrides": [Choice("train.max_steps", "50", GIVEN)]}, 10.0, (8.0, 50, 10)),
        ({"overrides": [Choice("train.max_steps", "2000000", GIVEN)]}, 10.0, (8.0, 2_000_000, 200)),
    ],
)
def test_training_gets_the_remaining_minutes_and_updates(tmp_path, fake_trainer, changes, minutes, limits):
    steps, reported = start_steps(tmp_path, **{name: value for name, value in changes.items() if name != "seconds"})
    seconds = changes.get("seconds", 0.0)
    records = [{"kind": "train", "step": 9, "seconds": seconds}, {"kind": "valid", "step": 9, "loss": 1, "seconds": 60}]
    steps.run.metrics_path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    steps.train(minutes, counts_preparing=True)
    (config,) = fake_trainer.configs
    assert (config.train.max_minutes, config.train.max_steps, config.train.decay_steps) == pytest.approx(limits)
    assert (config.decode.split, config.decode.max_length_offset) == ("lines", 7)
    assert config.model.vocab_size == 300 and config.data == steps.data.config
    assert reported.contain("training continues until then, about 10.0 minutes") == (limits[0] == 0.0)


@pytest.mark.parametrize(
    ("outcome", "line", "ends"),
    [
        (Outcome(7, "no better validation in 3", 0), "step 7: no better validation in 3", True),
        (Outcome(1234, "Ctrl-C", signal.SIGINT), "step 1,234: ended by Ctrl-C; to resume, give a larger", True),
        (Outcome(7, "stopped", signal.SIGTERM), "step 7: stopped", False),
    ],
)
def test_only_an_externally_stopped_training_continues(tmp_path, fake_trainer, outcome, line, ends):
    fake_trainer.outcomes.append(outcome)
    later_steps = dict.fromkeys(("chosen", "search", "scores", "examples", "finished"), "of the training before")
    steps, reported = start_steps(tmp_path, trained_for=9.0, **later_steps)
    assert steps.train(10.0, counts_preparing=False) == outcome and reported[-1].startswith(line)
    assert fake_trainer.configs[0].train.max_minutes == 10.0
    assert [steps.record[name] is None for name in later_steps] == [ends] * 5
    assert steps.record["trained_for"] == (10.0 if ends else 9.0)
    assert steps.record["has_converged"] == (outcome.step == 7 if ends else None)
    assert (steps.train(10.0, counts_preparing=False) is None) == ends
    assert reported.contain("was trained for 10 minutes before; to train longer, give a larger --minutes") == ends


def test_the_speed_of_the_machine_is_measured_once(tmp_path, monkeypatch):
    measured, machine = [], {"has_accelerator": False, "has_tpu": False, "computes_in_bfloat16": True}
    monkeypatch.setattr(speed, "updates_per_minute", lambda strategy, **options: measured.append(options) or 300.0)
    monkeypatch.setattr(fit_steps, "this_machine", lambda: machine)
    steps, _ = start_steps(tmp_path)
    overrides = [Choice("train.max_steps", "600", GIVEN)]
    assert steps.choose(9000, 10.0, overrides=overrides) == [*choose(9000, 10.0, 300.0, **machine, overrides=overrides)]
    for _ in range(2):
        assert steps.choose(9000, 10.0) == [*choose(9000, 10.0, 300.0, **machine)]
    assert measured == [{"mixed_bfloat16": True}]
    with pytest.raises(InputError, match="no_field"):
        steps.choose(9000, 10.0, overrides=[Choice("train.no_field", 1, GIVEN)])


@pytest.mark.parametrize(("has_accelerator", "updates"), [(True, 1475), (False, 73)])
def test_updates_of_another_preset_are_those_of_its_batches_and_its_size(
    tmp_path, monkeypatch, has_accelerator, updates
):
    """Not 18,000, by which the learning rate would decay from the first update on."""
    machine = {"has_accelerator": has_accelerator, "has_tpu": False, "computes_in_bfloat16": False}
    monkeypatch.setattr(fit_steps, "this_machine", lambda: machine)
    steps, _ = start_steps(tmp_path)
    steps.record.update(updates_per_minute=300.0)
    for max_steps in ([], [50], [2_000_000]):
        overrides = [Choice("preset", "base", GIVEN), *(Choice("train.max_steps", n, GIVEN) for n in max_steps)]
        choices = steps.choose(100_000, 60.0, overrides=overrides)
        assert {choice.name: choice.value for choice in choices}["updates"] == min(updates, *max_steps, 2_000_000)


@pytest.mark.parametrize(("nearest", "size"), [(700, 700), (5000, 7000)])
def test_a_default_vocabulary_size_is_adjusted_to_the_text(tmp_path, monkeypatch, nearest, size):
    sizes_tried = []

    def fake_prepare(corpus, config, data_dir, report, processes):
        sizes_tried.append(config.vocab_size)
        if config.vocab_size == 2000:
            raise VocabularySizeError("2000 cannot be", nearest)
        return "data"

    monkeypatch.setattr(fit_steps, "prepare", fake_prepare)
    steps, reported = start_steps(tmp_path)
    steps.prepare(None, DataConfig())
    assert (sizes_tried, steps.data, steps.choice("data.vocab_size")) == ([2000, size], "data", size)
    assert reported == [f"2000 cannot be; {size} is chosen"]
    assert steps.record["prepared"] and steps.record["preparing_minutes"] > 2.0
    minutes = steps.record["preparing_minutes"]
    steps.prepare(None, DataConfig())
    assert steps.record["preparing_minutes"] == minutes, "prepared text needs no more time"
    with pytest.raises(VocabularySizeError):
        start_steps(tmp_path / "given", [Choice("data.vocab_size", 2000, GIVEN)])[0].prepare(None, DataConfig())


def test_the_same_weights_are_exported_once(tmp_path, monkeypatch):
    def export(translator, config, export_dir, origin):
        version = export_dir / str(origin["step"])
        (version / CONFIG_FILE).parent.mkdir(parents=True)
        (version / GRAPH_FILE).touch()
        (version / CONFIG_FILE).write_text(json.dumps({"export": {**origin, "excluded": []}}))
        return version

    monkeypatch.setattr(writing, "export_translator", export)
    tiny.make_run(tmp_path / "run")
    steps, reported = start_steps(tmp_path)
    steps.translator = None
    for step, line in ((1, "exported: "), (1, " was exported before"), (2, "exported: "), (2, " was exported before")):
        steps.record.update(chosen={"name": "the average", "checkpoints": ["a", "b"], "step": step})
        assert steps.export() == tmp_path / "serving" / "mine" / str(step) and line in reported[-1]
    (tmp_path / "serving" / "mine" / "2" / CONFIG_FILE).write_text("{")
    with pytest.raises(InputError, match=f"cannot be read: .*; delete {tmp_path}/serving/mine/2 to export again"):
        steps.export()


def test_scores_are_reported_with_a_remark_on_low_ones(tmp_path):
    for value, is_low in ((9.9, True), (10.0, False)):
        scores = [
            {"name": name, "value": value * part, "signature": "s"} for name, part in (("BLEU", 1), ("chrF", 0.1))
        ]
        steps, reported = start_steps(tmp_path / str(value), scores=scores)
        steps.translator = SimpleNamespace(config=DecodeConfig(beam_size=3))
        steps.score()
        assert reported[:2] == ["1,234 sentences that training has not seen, beam 3", f"BLEU {value:.1f}  (s)"]
        assert reported.contain("With a BLEU below 10") == is_low


def test_the_test_set_is_scored_in_the_language_of_its_references(tmp_path, monkeypatch):
    """BLEU of Chinese text counts characters, although the data names no language."""
    found = []

    def evaluate(translator, sources, references, settings):
        found.append(settings.language)
        return SimpleNamespace(scores=[], hypotheses=references)

    monkeypatch.setattr(evaluation, "evaluate", evaluate)
    monkeypatch.setattr(evaluation, "write_evaluation", lambda *_: None)
    for references in (["他在花园里工作"], ["Er arbeitet im Garten"]):
        steps, _ = start_steps(tmp_path / references[0])
        steps.data.text = lambda split, lines=references: (["He works in the garden"], lines)
        steps.translator = SimpleNamespace(config=DecodeConfig())
        steps.score()
    assert found == ["zh", steps.data.config.target_language]


def test_the_most_and_the_least_similar_outputs_are_shown(tmp_path):
    references = ["abcdefghijklm"] * 13
    hypotheses = [reference[: 13 - number] for number, reference in enumerate(references)]
    sources = [*(f"a sentence of five {number}" for number in range(12)), "short one"]
    examples = fit_steps._examples(sources, references, hypotheses)
    numbers = {kind: [int(source.split()[-1]) for source, *_ in rows] for kind, rows in examples.items()}
    assert numbers == {"best": [0, 1, 2, 3, 4], "worst": [11, 10, 9, 8, 7]}
    few_examples = fit_steps._examples(sources[-1:] * 3, references[:3], hypotheses[2::-1])
    assert [[row[2] for row in rows] for rows in few_examples.values()] == [hypotheses[:2], hypotheses[2:3]]


def test_the_lowest_validation_loss_and_the_last_one(tmp_path):
    steps, _ = start_steps(tmp_path)
    assert steps.validations == (0, 0)
    records = [{"kind": "valid", "step": step, "loss": loss} for step, loss in ((10, 3.0), (20, 2.0), (30, 2.5))]
    steps.run.metrics_path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    assert steps.validations == (20, 30)


def test_choices_are_aligned_and_missing_packages_named(monkeypatch):
    assert format_choices([Choice("a", 1, "r"), Choice("longer", 200, "s")]) == "  a         1  r\n  longer  200  s"
    monkeypatch.setitem(sys.modules, "tensorflow_serving.apis", None)
    assert missing_for_serving() == "tensorflow_serving"


@pytest.mark.parametrize(
    ("corpus", "licence", "minutes", "license_text", "duration"),
    [
        ("opus:Books/v1", "", 0.5, "see the page of the corpus", "| seconds of training | 30 |"),
        ("tatoeba", "mine", 61.26, "mine.", "| minutes of training | 61.3 |"),
    ],
)
def test_the_card_of_a_model(tmp_path, corpus, licence, minutes, license_text, duration):
    row = ["a | b", "ref", "hyp", 41.6]
    record = {
        "files": None,
        "chosen": {"step": 1200, "name": "the average", "compared": "bleu: 3"},
        "search": "length penalty 1.4, by bleu: 1.4 31.0",
        "scores": [{"name": "BLEU", "value": 33.34, "signature": "s"}],
        "examples": {"best": [row], "worst": [row]},
    }
    data = SimpleNamespace(
        config=DataConfig(corpus=corpus, source_language="en", target_language="fr"),
        counts={"train": {"kept": 9876}, "test": {"kept": 20}},
        splits=["train", "test"],
        tokenizer=SimpleNamespace(vocab_size=300),
    )
    (tmp_path / "a model").mkdir()
    steps = SimpleNamespace(
        places=Places(tmp_path, tmp_path, tmp_path / "a model"),
        data=data,
        record=record,
        translator=SimpleNamespace(model=tiny.transformer()),
        minutes_trained=minutes,
        choices=[Choice("preset", "tiny", "usual")],
    )
    card = write_card(
        steps, tmp_path / "a model" / "3", licence, "--minutes=9", lambda text: text.replace("python", "py")
    )
    text = card.read_text()
    for line in (
        f"the corpus `{corpus}`. Licence of the text: {license_text}",
        duration,
        "from en to fr. Version 3 is",
        "| train | 9,876 |",
        "| updates | 1,200 |",
        "| search | length penalty 1.4, by bleu: 1.4 31.0 |",
        "| BLEU | 33.3 | `s` |",
        "| a \\| b | ref | hyp | 42 |",
        "| `preset` | `tiny` | usual |",
        "On 20 sentences",
        "on 9,876 pairs",
        "py -m launch.fit --minutes=9\n",
        f"py -m launch.serve --export_dir='{tmp_path}/a model'\n",
    ):
        assert line in text, line

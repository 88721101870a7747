"""Tests of launch.study: stopping, resuming, reusing, errors, shards and tables."""

import dataclasses
import importlib
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from unittest import mock

import keras
import pytest

from t2t_keras import evaluation
from t2t_keras.config import DataConfig
from t2t_keras.data.prepare import PreparedData, prepare
from t2t_keras.data.sources import corpora
from t2t_keras.errors import InputError
from t2t_keras.inference.translator import Translator
from t2t_keras.machine.streams import num_cores
from t2t_keras.runs import checkpoints
from t2t_keras.runs.records import read_metrics
from t2t_keras.studies import paper_tables
from t2t_keras.studies.study import Study
from t2t_keras.studies.study_settings import StudySettings, read_settings
from t2t_keras.tasks import translation_scores
from tests import programs
from tests.programs import assert_error, run_cases
from tests.studies.performed_study import InProcess, PerformedStudy, check_costs, config_of, record
from tests.training import tiny_training

pytestmark = pytest.mark.integration

ROOT = pathlib.Path(__file__).parents[2]
EXTENSION = f"--extension={ROOT / 'tests/studies/toy_table.py'}"
PATIENCE = 600  # seconds that a busy machine may take
TRAININGS = ["base/seed_1", "base/seed_2", "heads/seed_1", "fails/seed_1"]
MANY_STEPS = 3000  # more than training reaches before the signal


@pytest.fixture(scope="module", autouse=True)
def toy_table():
    """Registers the table while these tests run."""
    path = [*sys.path, str(ROOT / "tests" / "studies")]
    with mock.patch.dict(paper_tables.TABLES), mock.patch.object(sys, "path", path):
        yield importlib.import_module("toy_table")


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> PreparedData:
    folder = tmp_path_factory.mktemp("data_of_studies")
    texts = tiny_training.sentences(120)
    paths = {}
    for split, part in (("valid", texts[:10]), ("test", texts[10:20]), ("train", texts[20:])):
        paths[split] = (folder / f"{split}.source", folder / f"{split}.target")
        paths[split][0].write_text("".join(f"{line}\n" for line in part), encoding="utf-8")
        paths[split][1].write_text("".join(f"{tiny_training.reverse(line)}\n" for line in part), encoding="utf-8")
    config = DataConfig(vocab_size=tiny_training.VOCAB_SIZE)
    return prepare(corpora.files(paths), config, folder / "data", report=lambda line: None)


@dataclasses.dataclass
class StoppedStudy:
    """A study that received SIGTERM during training: its folder, exit status, error, and saved step."""

    study_dir: pathlib.Path
    status: int
    error: str
    step: int


@pytest.fixture(scope="module")
def stopped(data, tmp_path_factory) -> StoppedStudy:
    study_dir = tmp_path_factory.mktemp("studies") / "study"
    flags = [EXTENSION, "--table=toy", f"--data_dir={data.directory}", f"--study_dir={study_dir}", "--only=base"]
    command = ["-m", "launch.study", *flags, f"--set=train.max_steps={MANY_STEPS}"]
    run = study_dir / "base" / "seed_1"
    with programs.Program(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + PATIENCE
        while not read_metrics(run / "metrics.jsonl"):
            assert process.poll() is None and time.monotonic() < deadline, process.communicate()[1]
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        error = process.communicate(timeout=PATIENCE)[1]
    return StoppedStudy(study_dir, process.returncode, error, checkpoints.steps(run / "checkpoints")[-1])


@pytest.fixture(scope="module")
def max_steps(stopped) -> int:
    """Updates of a row: more than before the signal, and the last of them without a line of metrics."""
    return stopped.step + 1 + -stopped.step % 4


@pytest.fixture(scope="module")
def resumed(stopped, max_steps) -> subprocess.CompletedProcess:
    """Resumes the study from its folder, with only its first training run."""
    flags = [EXTENSION, f"--study_dir={stopped.study_dir}", "--shard=1/4", "--only=base"]
    command = ["-m", "launch.study", *flags, f"--set=train.max_steps={max_steps}"]
    return programs.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)


def test_signals_save_a_checkpoint_and_set_the_exit_status(stopped):
    assert stopped.status == 128 + signal.SIGTERM
    assert stopped.error.splitlines()[-1] == "base/seed_1: stopped; run the same command to resume"
    assert "Traceback" not in stopped.error and 0 < stopped.step < MANY_STEPS


def test_the_same_command_resumes(stopped, resumed, max_steps):
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stderr.splitlines()[-1] == "base/seed_1: finished"
    assert checkpoints.steps(stopped.study_dir / "base/seed_1/checkpoints")[-1] == max_steps
    assert resumed.stdout.startswith("A toy.\n\n| row ") and "| seed_2: to do |" in resumed.stdout


@pytest.fixture(scope="module")
def settings(resumed, stopped) -> StudySettings:
    del resumed
    return read_settings(stopped.study_dir, {})


@pytest.fixture(scope="module")
def study(settings, stopped) -> Study:
    return Study(stopped.study_dir, settings)


@pytest.fixture(scope="module")
def performed(study) -> list[PerformedStudy]:
    """The other jobs of the study: an evaluation is killed; then with the rows that depend on it; then again."""
    rows = ["fails", "base", "base_ensemble"]
    first = PerformedStudy(study, ("evaluate", "base/seed_2"), rows=["base"])
    return [first, PerformedStudy(study, rows=rows), PerformedStudy(study, rows=rows)]


def test_finished_jobs_are_reused(performed):
    assert performed[0].calls == [("train", "base/seed_2"), ("evaluate", "base/seed_2")]
    assert performed[2].calls == [("train", "fails/seed_1")]


def test_killed_processes_fail_their_row_and_are_resumed(performed):
    first, second, _ = performed
    assert first.performed.failed == ("base/seed_2",) and "the process ended with -9" in first.said[-1]
    assert second.calls[:2] == [("train", "base/seed_2"), ("evaluate", "base/seed_2")]


def test_failed_rows_do_not_stop_other_rows(performed):
    second = performed[1]
    assert second.performed == (("fails/seed_1",), (), (), 0)
    assert second.said[-1].startswith("fails/seed_1: failed: pair 0 ")
    jobs = ("base/seed_2", "base/ensemble", "fails/seed_1")
    assert second.said[:-1] == [f"{job}: {what}" for job in jobs for what in ("begins", "finished")][:-1]


def test_records_of_training(study, performed, data, max_steps):
    """Compares with the metrics and the last checkpoint."""
    del performed
    for seed in (1, 2):
        name = f"base/seed_{seed}"
        results, config = record(study, name), config_of(study, name)
        assert (config.train.seed, results["updates"]) == (seed, max_steps)
        assert results["parameters"] == sum(config.model.parameter_counts().values())
        lines = [line for line in read_metrics(study.study_dir / name / "metrics.jsonl") if line["kind"] == "train"]
        _, rest, _, _, seconds = checkpoints.latest(study.study_dir / name / "checkpoints").state["interval"]
        assert lines and rest > 0
        assert results["target_tokens"] == sum(line["tokens"] for line in lines) + rest
        busy = sum(line["processor_seconds"] for line in lines) + seconds
        assert results["hours"] == pytest.approx(busy / 3600 / num_cores())
        check_costs(study, results, config, data)


def test_records_of_evaluation(study, performed, data):
    """Compares with a new translation and its scores."""
    del performed
    name = "base/seed_2"
    folder, results, config = study.study_dir / name, record(study, name), config_of(study, name)
    translator = Translator.load(folder, "averaged_last10", config.decode)
    for split in ("valid", "test"):
        sources, references = data.text(split)
        hypotheses = [translation.text for translation in translator.translate(sources)]
        assert hypotheses == (folder / "evaluation" / split / "hypotheses.txt").read_text().splitlines()
        scores = {
            score.name: score.value for score in translation_scores.lowercased_scores(hypotheses, references, "de")
        }
        assert results[f"{split}_bleu"] == translation_scores.bleu(hypotheses, references, "de")
        assert results[f"{split}_bleu_tokenised_lowercased"] == scores["BLEU tokenised lowercased"]
    sources, references = data.text("valid")
    entropy = evaluation.corpus_cross_entropy(translator.model, translator.tokenizer, sources, references)
    assert results["valid_perplexity"] == pytest.approx(evaluation.perplexity(entropy), rel=1e-5)
    assert results["output_tokens_per_second"] > 0 and f"Keras {keras.__version__}" in results["versions"]


def test_ensembles_combine_all_seeds(study, performed, data):
    del performed
    members_results, results = [record(study, f"base/seed_{seed}") for seed in (1, 2)], record(study, "base/ensemble")
    for name in ("parameters", "hours", "flops_by_count", "flops_by_time"):
        assert results[name] == pytest.approx(sum(member[name] for member in members_results))
    members = [(study.study_dir / f"base/seed_{seed}", "averaged_last10") for seed in (1, 2)]
    translator = Translator.load_ensemble(members, settings=config_of(study, "base/seed_1").decode)
    sources, _ = data.text("test")
    output_text = (study.study_dir / "base/ensemble/evaluation/test/hypotheses.txt").read_text(encoding="utf-8")
    assert [translation.text for translation in translator.translate(sources)] == output_text.splitlines()


def test_changed_search_settings_do_not_require_training(study, performed, settings, tmp_path):
    del performed
    shutil.copytree(study.study_dir, tmp_path / "study")
    other = Study(
        tmp_path / "study", dataclasses.replace(settings, settings=(*settings.settings, "decode.beam_size=1"))
    )
    messages: list[str] = []
    assert other.perform(["base/seed_1"], messages.append, InProcess()) == ((), (), (), 0)
    assert messages[0].endswith("because settings changed: decode.beam_size: 4 -> 1")
    assert messages[1:] == ["base/seed_1: finished"]
    metrics = "base/seed_1/metrics.jsonl"
    assert (tmp_path / "study" / metrics).read_bytes() == (study.study_dir / metrics).read_bytes()
    assert read_settings(tmp_path / "study", {}).settings[-1] == "decode.beam_size=1"


def test_tables_can_be_printed_without_the_data(study, performed, settings, tmp_path):
    del performed
    shutil.copytree(study.study_dir, tmp_path / "study", ignore=shutil.ignore_patterns("checkpoints"))
    elsewhere = Study(tmp_path / "study", dataclasses.replace(settings, data_dir=""))
    assert elsewhere.table.markdown(elsewhere.states()) == study.table.markdown(study.states())
    assert dataclasses.replace(elsewhere.data, directory=study.data.directory) == study.data
    moved = dataclasses.replace(settings, data_dir=str(tmp_path / "moved"))
    elsewhere = Study(tmp_path / "study", moved)
    assert elsewhere.table.markdown(elsewhere.states()) == study.table.markdown(study.states())
    with pytest.raises(InputError, match="moved: no prepared data here"):
        elsewhere.perform(elsewhere.selected(), print)
    with pytest.raises(InputError, match="moved: no prepared data here"):
        Study(tmp_path / "new", moved)
    (tmp_path / "study" / "data.json").write_text("{}")
    with pytest.raises(InputError, match=r"data\.json is damaged: "):
        Study(tmp_path / "study", dataclasses.replace(settings, data_dir=""))


def test_shards_divide_the_training_runs(study):
    shards = [study.selected(shard=(number, 3)) for number in (1, 2, 3)]
    assert all("base/ensemble" in shard for shard in shards)
    trainings = [[job for job in shard if "seed" in job] for shard in shards]
    assert sorted(sum(trainings, [])) == sorted(TRAININGS)
    assert [len(shard) for shard in trainings] == [2, 1, 1]
    assert study.selected(["heads"], (3, 3)) == ["heads/seed_1"]
    with pytest.raises(InputError, match="table toy has no row 'head'; valid: base, base_ensemble, heads, fails"):
        study.selected(["head"])


def test_ensembles_wait_for_their_members(settings, tmp_path):
    performing = PerformedStudy(Study(tmp_path, settings), rows=["base_ensemble"])
    assert performing.performed.waiting == ("base/ensemble",) and not performing.calls
    assert performing.said == ["base/ensemble: waits for base/seed_1, base/seed_2"]


@pytest.fixture(scope="module")
def cases(stopped, performed, data, tmp_path_factory) -> dict[str, tuple[int, str, str]]:
    """The exit status, standard output and standard error of other calls."""
    del performed
    other_folder = tmp_path_factory.mktemp("other_studies")
    study_dir, new = f"--study_dir={stopped.study_dir}", f"--study_dir={other_folder / 'new'}"
    waiting = [f"--study_dir={other_folder / 'waiting'}", "--table=toy", f"--data_dir={data.directory}"]
    mixed = "--set=train.mixed_bfloat16=true"
    calls = {
        "print": [study_dir, "--print"],
        "rows": [study_dir, "--rows"],
        "plan": [study_dir, "--plan"],
        "plan of a row": [study_dir, "--plan", "--only=heads"],
        "plan of an unknown row": [study_dir, "--plan", "--only=tail"],
        "plan of the paper's": [new, "--table=3", "--scale=paper", "--plan", "--devices=8", "--device=h100", mixed],
        "again": [study_dir, "--only=base,base_ensemble"],
        "waits": [*waiting, "--only=base_ensemble"],
        "waits for another part": [*waiting, "--only=base_ensemble", "--shard=1/2"],
        "other settings": [study_dir, "--only=base", "--set=model.dropout_rate=0"],
        "unknown table": [new, "--table=7"],
        "no data": [new, "--table=3"],
        "unknown row": [study_dir, "--only=tail"],
        "shard": [study_dir, "--shard=3/2"],
        "devices without a plan": [study_dir, "--devices=8"],
        "a device without devices": [study_dir, "--plan", "--device=h100"],
        "plan and rows": [study_dir, "--plan", "--rows"],
        "some of all rows": [study_dir, "--print", "--only=base"],
    }
    results = run_cases("launch.study", [([EXTENSION, *arguments], b"") for arguments in calls.values()])
    assert [path.name for path in other_folder.iterdir()] == ["waiting"]
    return dict(zip(calls, results, strict=True))


def test_printed_table_and_rows(cases, stopped):
    table = (stopped.study_dir / "toy.md").read_text(encoding="utf-8")
    assert cases["print"] == (0, table, "") and cases["again"] == (0, table, "")
    assert cases["rows"] == (0, "base\nbase_ensemble\nheads\nfails\n", "")


def test_plan(cases):
    status, text, _ = cases["plan"]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    assert status == 0
    assert [(row[0], row[-1]) for row in rows[2:]] == [
        ("base", "finished"),
        ("base_ensemble", "finished"),
        ("heads", "to do"),
        ("fails", "to do"),
    ]
    status, text, _ = cases["plan of a row"]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert status == 0 and len(lines) == 3 and lines[2].startswith("| heads")
    status, text, _ = cases["plan of the paper's"]
    assert "| big          | 214,245,376 | 300,000     | 9.7e18 | 2.1 " in text
    assert text.endswith("Hours assume 8 x h100 per row, at 20% of their peak.\n")


def test_waiting_rows_are_errors_unless_another_shard_trains_their_members(cases):
    waits = "base/ensemble: waits for base/seed_1, base/seed_2\n"
    assert cases["waits"][0] == 1 and cases["waits"][2] == f"{waits}error: not finished: base/ensemble\n"
    assert cases["waits for another part"][0] == 0 and cases["waits for another part"][2] == waits


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("other settings", "base/seed_1 was trained with different settings: model.dropout_rate: 0.3 -> 0.0"),
        ("unknown table", "unknown table '7'; valid: "),
        ("no data", "--data_dir must be given to start a study"),
        ("plan of an unknown row", "table toy has no row 'tail'; valid: base, base_ensemble, heads, fails"),
        ("unknown row", "table toy has no row 'tail'; valid: base, base_ensemble, heads, fails"),
        ("shard", "--shard=3/2: expected I/N with I from 1 to N, such as 2/8"),
        ("devices without a plan", "--devices requires --plan"),
        ("a device without devices", "--device requires --devices"),
        ("plan and rows", "--rows and --plan cannot be combined"),
        ("some of all rows", "--only cannot be combined with --print, which concerns all rows"),
    ],
)
def test_errors(cases, name, words):
    assert_error(cases[name], words)

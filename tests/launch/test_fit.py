"""launch.fit turns two text files into an exported model, and resumes after interruptions."""

import json
import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from tests import programs

ROOT = Path(__file__).parents[2]
ENGLISH = "the a big small red old new dog cat house tree sees hears finds here now"
GERMAN = "der ein grosse kleine rote alte neue Hund Katze Haus Baum sieht findet hoert hier jetzt"

# The number of updates ends training, independent of the clock; --minutes only has to be large enough.
SETTINGS = {
    **{"model.num_encoder_layers": 1, "model.num_decoder_layers": 1, "model.d_model": 16, "model.d_ff": 32},
    **{"model.num_heads": 2, "train.max_steps": 12, "train.checkpoint_minutes": 0, "train.checkpoint_steps": 3},
    **{"train.log_steps": 3, "train.validation_sentences": 5, "train.tokens_per_batch": 400},
    **{"decode.beam_size": 2, "decode.max_length_offset": 4, "decode.max_length_factor": 0},
    "data.truecase": True,
}
FLAGS = ["--vocab_size=300", "--held_out_pairs=20", *(f"--set={name}={value}" for name, value in SETTINGS.items())]
FILES = ["--source=a.en", "--target=a.de", "--output=mine"]

# Runs launch.fit, which receives a signal when it calls certain functions.
KILLED_AT = """
import contextlib, os, runpy, signal, sys
from unittest import mock

def patched(place, number):
    __import__(place[0])
    return mock.patch(".".join(place), lambda *_, **__: os.kill(os.getpid(), number))

with contextlib.ExitStack() as stack:
    for place, number in {places}:
        stack.enter_context(patched(place, number))
    runpy.run_module("launch.fit", run_name="__main__")
"""
PREPARING = ("t2t_keras.data.prepare", "output_limit")
CHECKING = ("t2t_keras.fitting.fit_record", "FitRecord.check_same")
BEGINNING = ("t2t_keras.training.trainer", "Trainer.train")
TRAINING = ("t2t_keras.training.monitor", "Monitor.log_validation")
# Skips writing the graphs, which take longest, for an export that is killed before it is published.
WITHOUT_GRAPHS = """
from t2t_keras.export import writing

def _save(translator, storage, path):
    path.mkdir()
    (path / "saved_model.pb").touch()
    return {}

writing._save = _save
"""
KEEPING = ("t2t_keras.fitting.fit_steps", "FitSteps.choose_weights")
CHOOSING = ("t2t_keras.runs.averaging", "average")
SEARCHING = ("t2t_keras.runs.run", "Run.store_decoding")
SCORING = ("t2t_keras.evaluation", "write_evaluation")
EXPORTING = ("t2t_keras.export.writing", "_publish")
DESCRIBING = ("t2t_keras.fitting.model_card", "_title")


def write_text(folder: Path, pairs: int = 600) -> None:
    numbers = [[(index // 16**place) % 16 for place in range(4)] for index in range(pairs)]
    for name, words in (("a.en", ENGLISH), ("a.de", GERMAN)):
        lines = [" ".join(words.split()[number] for number in row) for row in numbers]
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def fit(folder: Path, *flags: str, code: str | None = None) -> tuple[int, str, str]:
    """Returns the exit status, standard output and standard error."""
    command = ["-c", code, *flags] if code else ["-m", "launch.fit", *flags]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = programs.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    return result.returncode, result.stdout, result.stderr


def killed_at(place: tuple[str, str], *others: tuple[tuple[str, str], int]) -> str:
    """Code that kills the program at one function, and sends it other signals at others."""
    return KILLED_AT.format(places=[(place, int(signal.SIGKILL)), *others])


def error_of(folder: Path, *flags: str) -> str:
    """Returns the one-line error of a call that fails."""
    status, output, errors = fit(folder, *flags)
    assert (status, output) == (1, ""), errors
    assert errors.startswith("error: ") and errors.count("\n") == 1
    return errors.removeprefix("error: ").strip()


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A folder in which the program was killed once in each step and then succeeded, and the output of each call."""
    folder = tmp_path_factory.mktemp("fit")
    write_text(folder)
    flags = [*FILES, "--minutes=100", "--licence=made for a test", *FLAGS]
    outputs = []
    for place in (PREPARING, CHECKING, TRAINING, CHOOSING, SEARCHING, SCORING, EXPORTING, DESCRIBING):
        code = killed_at(place)
        status, output, errors = fit(folder, *flags, code=WITHOUT_GRAPHS + code if place == EXPORTING else code)
        assert status == -signal.SIGKILL, errors
        outputs.append(output)
    for _ in range(2):
        status, output, errors = fit(folder, *flags)
        assert status == 0, errors
        outputs.append(output)
    return folder, outputs


@pytest.mark.integration
def test_each_call_resumes_where_the_last_one_was_killed(fitted: tuple[Path, list[str]]) -> None:
    folder, (preparing, checking, training, choosing, searching, scoring, exporting, describing, last, again) = fitted
    assert "2. Training" not in preparing and "1. Text" not in checking
    assert "resuming after an interruption" in training and "2. Training" in training
    assert "already prepared" in choosing and "chosen:" not in choosing
    # Held-out pairs do not count as excluded.
    assert "train: 560 pairs" in choosing and "excluded from training" not in choosing
    assert "step 12: reached train.max_steps" in choosing
    assert "was trained for 100 minutes before" in searching and "chosen: the" in searching
    assert "chosen: length penalty" not in searching
    assert "chosen: length penalty" in scoring and "BLEU" not in scoring
    assert "BLEU" in exporting and "exported" not in exporting
    (score,) = re.findall(r"^BLEU ([\d.]+) ", exporting, re.MULTILINE)
    assert ("With a BLEU below 10" in exporting) == (float(score) < 10)
    assert "exported: mine/serving/mine/1" in describing and "model card" not in describing
    assert "mine/serving/mine/1 was exported before" in last and "model card: mine/serving/mine/README.md" in last
    assert again.startswith("mine is complete: training has used its 100 minutes") and "1. Text" not in again
    assert "--minutes=200  # resume training; the validation loss was still falling" in again
    served = folder / "mine/serving/mine"
    assert [path.name for path in sorted(served.iterdir()) if path.name[0] != "."] == ["1", "README.md"]


@pytest.mark.integration
def test_choices_are_printed_and_flags_override_them(fitted: tuple[Path, list[str]]) -> None:
    folder, (output, *_) = fitted
    choices = {each["name"]: each for each in json.loads((folder / "mine/run/fit.json").read_text())["choices"]}
    for choice in choices.values():
        assert any(line.split()[:2] == [choice["name"], str(choice["value"])] for line in output.splitlines())
    assert choices["data.vocab_size"] == {"name": "data.vocab_size", "value": 300, "reason": "given"}
    assert choices["model.dropout_rate"]["reason"] != "given"
    config = json.loads((folder / "mine/run/config.json").read_text())
    assert config["model"]["d_model"] == 16 and config["decode"]["max_length_offset"] == 4
    assert config["model"]["dropout_rate"] == choices["model.dropout_rate"]["value"]
    assert config["data"]["truecase"] and (folder / "mine/run/truecase.txt").exists()


@pytest.mark.integration
def test_programs_use_the_checkpoint_with_the_better_validation(fitted: tuple[Path, list[str]]) -> None:
    folder, _ = fitted
    chosen = json.loads((folder / "mine/run/fit.json").read_text())["chosen"]
    assert "the average of 3 checkpoints" in chosen["compared"] and "the checkpoint of step" in chosen["compared"]
    assert chosen["name"] in chosen["compared"]
    scores = json.loads((folder / "mine/run/evaluation/test/scores.json").read_text())
    assert scores["num_lines"] == 20 and scores["settings"]["checkpoint"] == "chosen"
    assert scores["settings"]["data_split"] == "test"
    translated = [
        programs.run(
            ["-m", "launch.translate", f"--model_dir={model_dir}"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            input="the dog sees here\n",
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for model_dir in ("mine/run", "mine/serving/mine")
    ]
    assert translated[0] == translated[1]


@pytest.mark.integration
def test_model_card(fitted: tuple[Path, list[str]]) -> None:
    folder, outputs = fitted
    card = (folder / "mine/serving/mine/README.md").read_text(encoding="utf-8")
    assert [line[3:] for line in card.splitlines() if line.startswith("## ")] == [
        *("Data", "Sizes", "Choices", "Scores", "Examples", "Limits", "Commands")
    ]
    assert "from en to de" in card and "made for a test" in card
    assert "`a.en`, `a.de`" in card and str(folder) not in card
    assert "| test | 20 |" in card and "| valid | 20 |" in card
    for score in json.loads((folder / "mine/run/fit.json").read_text())["scores"]:
        assert score["signature"].replace("|", "\\|") in card
        assert score["signature"] in outputs[-2]
    assert "python -m launch.serve --export_dir=mine/serving/mine" in card
    for kind in ("best", "worst"):
        assert outputs[-2].count(f"  {kind}, chrF ") == 5


@pytest.mark.integration
def test_changed_choices_text_and_languages_are_rejected(fitted: tuple[Path, list[str]], tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(fitted[0], folder)
    started = "mine was started with different data or choices"
    flags = [*FILES, "--minutes=100", *FLAGS]
    more = error_of(folder, *flags, "--set=model.dropout_rate=0.2")
    assert more.startswith(f"{started} (set: ") and "use a different folder" in more
    original = fitted[0]
    languages = error_of(original, *flags, "--target_language=nl")
    assert languages == f"{started} (target_language: 'de' -> 'nl'); use a different folder"
    before = (original / "a.de").read_text(encoding="utf-8")
    try:
        (original / "a.de").write_text(before.replace("Hund", "Wolf"), encoding="utf-8")
        text = error_of(original, *flags)
        assert text.startswith("mine/run was started with different data or choices (train_target: ")
    finally:
        (original / "a.de").write_text(before, encoding="utf-8")


@pytest.mark.integration
def test_moved_and_renamed_folders(fitted: tuple[Path, list[str]], tmp_path: Path) -> None:
    shutil.copytree(fitted[0], tmp_path / "moved")
    (tmp_path / "moved/mine").rename(tmp_path / "moved/yours")
    for code in ("en", "de"):
        (tmp_path / f"moved/a.{code}").rename(tmp_path / f"text.{code}")
    files = [f"--source={tmp_path}/text.en", f"--target={tmp_path}/text.de", "--output=moved/yours"]
    status, output, errors = fit(tmp_path, *files, "--minutes=100", *FLAGS)
    assert status == 0, errors
    assert output.startswith("moved/yours is complete: training has used its 100 minutes")
    assert "launch.serve --export_dir=moved/yours/serving/mine " in output
    record = tmp_path / "moved/yours/run/fit.json"
    values = json.loads(record.read_text(encoding="utf-8"))
    assert str(fitted[0]) not in json.dumps(values["asked"]) and values["files"] == ["text.en", "text.de"]


@pytest.mark.integration
def test_ctrl_c_ends_only_training(tmp_path: Path) -> None:
    """Killed when the steps after training start."""
    write_text(tmp_path)
    flags = [*FILES, "--minutes=100", *FLAGS, "--set=train.max_steps=1000000"]
    ctrl_c = ("t2t_keras.training.monitor", "Monitor.progress"), int(signal.SIGINT)
    status, output, errors = fit(tmp_path, *flags, code=killed_at(KEEPING, ctrl_c))
    assert status == -signal.SIGKILL, errors
    assert ": ended by Ctrl-C; to resume, give a larger --minutes" in output
    status, output, errors = fit(tmp_path, *flags, code=killed_at(KEEPING, (BEGINNING, int(signal.SIGTERM))))
    assert status == -signal.SIGKILL and "was trained for 100 minutes before" in output, errors


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--output=mine"], "give --source and --target, two text files, or --corpus"),
        (["--source=a.en"], "--source=a.en: give --target, its translation, or a file with both sides"),
        (["--source=a.tsv", "--target=a.de"], "--source=a.tsv: the file has both sides; omit --target"),
        (["--source=a.srt"], "a.srt: subtitles cannot be read; give text whose lines correspond, or a .tsv file"),
        (
            ["--source=a.tsv"],
            "a.tsv: the name of a file with both sides does not name its languages; give --source_language and "
            "--target_language",
        ),
        (
            ["--source=a.src", "--target=a.tgt"],
            "a.src and a.tgt: the names do not end in two languages, as a.en and a.de do; give --source_language and "
            "--target_language, such as en and de",
        ),
        (["--source=a.en", "--target=b.en"], "a.en and b.en: both languages are en; give --source_language and "),
        (
            ["--corpus=multi30k", "--source=a.en"],
            "--corpus=multi30k has its own text; omit --source and --target",
        ),
        (
            ["--source=a.en", "--target=a.de", "--set=train.max_minutes=3"],
            "--set train.max_minutes=3: give --minutes instead",
        ),
        (
            ["--source=a.en", "--target=a.de", "--set=data.seed=3"],
            "--set data.seed=3: valid settings of the data: --vocab_size, data.lowercase, ",
        ),
        (["--source=a.en", "--target=a.de", "--output=a.en"], "--output=a.en is a file; give a folder"),
        (
            ["--source=a.en", "--target=a.de", "--output=full"],
            "--output=full contains a, which launch.fit did not write; give",
        ),
    ],
)
@pytest.mark.integration
def test_errors_leave_no_files(flags: list[str], message: str, tmp_path: Path) -> None:
    write_text(tmp_path)
    for name in ("a.src", "a.tgt", "a.tsv", "a.srt", "b.en"):
        (tmp_path / name).write_text("text\n")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/a").touch()
    assert error_of(tmp_path, "--output=new", *flags).startswith(message)
    assert not (tmp_path / "new").exists()


@pytest.mark.integration
def test_small_texts_get_the_largest_possible_vocabulary(tmp_path: Path) -> None:
    write_text(tmp_path)
    flags = [*FILES, "--minutes=100", *FLAGS[1:]]  # without --vocab_size, the rule gives 2,000 entries
    status, output, errors = fit(tmp_path, *flags, code=killed_at(BEGINNING))
    assert status == -signal.SIGKILL and "2. Training" in output, errors
    warning = re.search(
        r"vocab_size=2000 is more than the text allows; the largest valid size is (\d+); \1 is chosen", output
    )
    assert warning and warning[1] == str(
        json.loads((tmp_path / "mine/data/data.json").read_text())["config"]["vocab_size"]
    )
    status, output, errors = fit(tmp_path, *flags, code=killed_at(BEGINNING))  # resumes with this size
    assert status == -signal.SIGKILL and re.search(
        rf"data.vocab_size +{warning[1]}  the text allows no more entries", output
    )

"""The quickstart from end to end, with a generated corpus instead of the downloaded one."""

import os
import re
from pathlib import Path

import pytest

from tests import programs

ROOT = Path(__file__).parents[2]

# Three runs in a separate process, because absl does not allow two programs with the same flags in one process.
SESSION = """
from absl import flags
from launch import quickstart
from t2t_keras.data.sources import corpora
from t2t_keras.fitting import speed

ENGLISH = "the a big small red old new dog cat house tree sees hears finds here now".split()
GERMAN = "der ein grosse kleine rote alte neue Hund Katze Haus Baum sieht findet hoert hier jetzt".split()

def pairs(first, last):
    for index in range(first, last):
        words = [(index // 16**place) % 16 for place in range(4)]
        yield " ".join(ENGLISH[word] for word in words), " ".join(GERMAN[word] for word in words)

def gettext(source_language, target_language, download_dir, report, name):
    assert (source_language, target_language) == ("en", "de")
    splits = {"train": (0, 3000), "valid": (5000, 5020), "test": (6000, 6020)}
    return corpora.Corpus({name: lambda ends=ends: pairs(*ends) for name, ends in splits.items()})

corpora.gettext = gettext
speed.updates_per_minute = lambda *_, **__: 60_000.0  # as if the time were sufficient
overrides = {"data.vocab_size": 300, "model.num_encoder_layers": 1, "model.num_decoder_layers": 1}
quickstart.OVERRIDES = tuple(quickstart.Choice(name, value, "given") for name, value in overrides.items())
flags.FLAGS(["quickstart", "--data_dir=data", "--model_dir=run", "--minutes=0.02"])
for minutes in (0.02, 0.02, 0.06):
    flags.FLAGS.minutes = minutes
    quickstart.main([])
    print("=====")
"""


# Two servers that fail: one exits at the start, and one prints an address at which it does not listen.
FAILURES = """
import pathlib, sys
from launch import quickstart
from t2t_keras.errors import InputError

for sys.executable in sys.argv[1:]:
    try:
        quickstart._serve(pathlib.Path("quickstart/1"), [])
    except InputError as error:
        print(error)
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The folder of the runs, and the output of each."""
    folder = tmp_path_factory.mktemp("quickstart")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "2"}
    environment |= {"http_proxy": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}  # must not be used
    finished = programs.run(["-c", SESSION], cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    assert finished.returncode == 0, finished.stderr
    return folder, finished.stdout.split("=====\n")[:3]


def steps(folder: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("step_")) for path in (folder / "run/checkpoints").glob("step_*"))


@pytest.mark.slow  # runs the quickstart three times
def test_a_second_run_does_not_prepare_or_train(runs: tuple[Path, list[str]]) -> None:
    _, (first, second, _) = runs
    assert "already prepared" not in first and "already prepared" in second
    assert "reached train.max_minutes" in first
    assert "reached train.max_minutes" not in second and "to train longer, give a larger --minutes" in second
    scores = [[line for line in output.splitlines() if line.startswith(("BLEU", "chrF"))] for output in (first, second)]
    assert scores[0] == scores[1]


@pytest.mark.slow  # runs the quickstart three times
def test_more_minutes_resume_training(runs: tuple[Path, list[str]]) -> None:
    folder, (first, _, third) = runs
    ends = [int(re.findall(r"^step (\d+): reached", output, re.MULTILINE)[0]) for output in (first, third)]
    assert 0 < ends[0] < ends[1]
    assert "\n2. Training for 0.06 minutes\n" in third  # not for the updates of 0.02 minutes
    assert steps(folder) == ends


@pytest.mark.slow  # runs the quickstart three times
def test_quickstart_exports_and_serves_the_model(runs: tuple[Path, list[str]]) -> None:
    folder, outputs = runs
    for output in outputs:
        assert re.search(r"POST http://127\.0\.0\.1:\d+/v1/models/quickstart:predict", output)
        assert "5 of 5 translations equal those above" in output
    paths = [re.findall(r"^(?:exported: )?(\S+/quickstart/\d+)", output, re.MULTILINE)[0] for output in outputs]
    assert [path.removeprefix("saved_models/") for path in paths] == [f"quickstart/{n}" for n in (1, 1, 2)]
    assert sorted(path.name for path in (folder / "saved_models/quickstart").iterdir()) == ["1", "2"]


def test_errors_of_a_server_that_fails(tmp_path: Path) -> None:
    lines = {"closed": "exit 1", "deaf": "echo 'serving it: REST at http://127.0.0.1:9, gRPC at 127.0.0.1:9'"}
    for name, line in lines.items():
        (tmp_path / name).write_text(f"#!/bin/sh\necho 'error: no port' >&2\n{line}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    command = ["-c", FAILURES, *(str(tmp_path / name) for name in lines)]
    finished = programs.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    closed, deaf = finished.stdout.splitlines()
    assert closed == "launch.serve failed: it did not start: no port"
    assert "Connection refused" in deaf and deaf.endswith(": no port")

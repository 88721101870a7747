"""Programs import TensorFlow only when their work starts, not for --help or for invalid input."""

import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest

from tests.programs import ROOT

PROGRAMS = sorted(
    path.stem for path in (ROOT / "launch").glob("*.py") if "program.command(" in path.read_text(encoding="utf-8")
)
NEED_NOTHING = {"quickstart", "prove"}  # start their work without flags
RUN = "tests/golden/run"
DISTIL_FLAGS = ["--direction=back", "--target=README.md", "--output_source=OUT", "--output_target=OUT.de"]
MISSING = {
    "attention": ["--model_dir=missing", "--source=x", "--output=OUT"],
    "average_checkpoints": ["--model_dir=missing"],
    "choose_search": ["--model_dir=missing"],
    "choose_search data": [f"--model_dir={RUN}", "--data_dir=missing"],
    "convert from": ["--from=huggingface", "--input=missing", "--model_dir=OUT"],
    "convert to": ["--to=huggingface", "--model_dir=missing", "--output=OUT"],
    "describe": ["--model_dir=missing"],
    "distil run": [*DISTIL_FLAGS, "--model_dir=missing", "--source=README.md"],
    "distil text": [*DISTIL_FLAGS, f"--model_dir={RUN}", "--source=missing"],
    "draw_trees": ["--input=missing", "--output_dir=OUT"],
    "evaluate run": ["--model_dir=missing", "--split=test"],
    "evaluate text": [f"--model_dir={RUN}", "--source=missing", "--reference=README.md", "--output_dir=OUT"],
    "export": ["--model_dir=missing", "--export_dir=OUT"],
    "fit": ["--source=missing.en", "--target=missing.de", "--output=OUT"],
    "prepare_data": ["--train_source=missing.en", "--train_target=missing.de", "--data_dir=OUT"],
    "prove run": ["--serving=localhost:1", "--model_dir=missing", "--input=README.md"],
    "prove text": ["--serving=localhost:1", f"--model_dir={RUN}", "--input=missing"],
    "score run": ["--model_dir=missing", "--source=README.md", "--translation=README.md"],
    "score text": [f"--model_dir={RUN}", "--source=missing", "--translation=README.md"],
    "serve": ["--export_dir=missing"],
    "study": ["--table=3", "--data_dir=missing", "--study_dir=OUT"],
    "train data": ["--data_dir=missing", "--model_dir=OUT", "--preset=tiny"],
    "train run": ["--init_from=missing", "--model_dir=OUT", "--preset=tiny"],
    "translate run": ["--model_dir=missing"],
    "translate checkpoint": [f"--model_dir={RUN}", "--checkpoint=missing"],
    "translate text": [f"--model_dir={RUN}", "--input=missing"],
    "translate page": [f"--model_dir={RUN}", "--input=missing", "--markup=html"],
    "translate glossary": [f"--model_dir={RUN}", "--glossary=missing"],
}

# Each case runs in a fork of a process that has imported the modules that all programs share.
_FORKS = """
import json, os, runpy, sys, numpy, sentencepiece, tqdm, absl.app
import t2t_keras.data.prepare, t2t_keras.data.sources.corpora, t2t_keras.planning.fit_rules

HEAVY = ["tensorflow", "keras", "tensorflow_text", "tensorflow_datasets", "matplotlib", "jax", "ctranslate2"]

def case(program, arguments):
    sys.argv = [program, *arguments]
    try:
        runpy.run_module(f"launch.{program}", run_name="__main__", alter_sys=True)
    except SystemExit as error:
        sys.stdout.flush()
        return [error.code, [name for name in HEAVY if name in sys.modules]]

outcomes = []
for program, arguments in json.load(sys.stdin):
    reading, writing = os.pipe()
    if not os.fork():
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        os.dup2(os.memfd_create("output"), 1)
        os.dup2(1, 2)
        outcome = case(program, arguments)
        os.lseek(1, 0, os.SEEK_SET)
        os.write(writing, json.dumps([*outcome, os.read(1, 1 << 20).decode()]).encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as file:
        outcomes.append(json.loads(file.read() or "null"))
    os.wait()
json.dump(outcomes, sys.stdout)
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """By case: exit status, the imported modules that load slowly, and the output."""
    out = str(tmp_path_factory.mktemp("out") / "out")
    cases = {f"{name} {flag}": [name, [flag]] for name in PROGRAMS for flag in ("--help", "--helpfull", "--nonsense")}
    cases |= {f"{name} alone": [name, []] for name in PROGRAMS if name not in NEED_NOTHING}
    for name, arguments in MISSING.items():
        cases[f"{name} missing"] = [name.split()[0], [argument.replace("OUT", out) for argument in arguments]]
    command = [sys.executable, "-c", _FORKS]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    stdin = json.dumps(list(cases.values()))
    result = subprocess.run(command, input=stdin, capture_output=True, text=True, cwd=ROOT, env=environment, check=True)
    return dict(zip(cases, json.loads(result.stdout), strict=True))


def test_slow_modules_are_imported_only_for_work(outcomes):
    assert len(PROGRAMS) > 10 and {name.split()[0] for name in MISSING} | {"quickstart"} == set(PROGRAMS)
    assert {name: heavy for name, (_, heavy, _) in outcomes.items() if heavy} == {}


def test_help_and_errors(outcomes):
    """Ensures that the cases of the test above reach the code that they should reach."""
    for name, (status, _, output) in outcomes.items():
        if "--help" in name:
            assert status == 0 and "--flagfile" in output, name
        elif name != "describe alone":
            assert status == 1 and re.fullmatch(r"error: .*\n", output), (name, output)
        if "--nonsense" in name:
            assert "nonsense" in output, name
        if name.endswith(" missing"):
            assert "missing" in output, name


CODE = """
import os, sys
from launch import program
{before}
assert not {{"keras", "tensorflow"}} & sys.modules.keys()
import keras
print(keras.backend.backend())
"""


def import_keras(tmp_path, settings: str, before: str = "", **environment: str) -> subprocess.CompletedProcess:
    """Runs a program that imports Keras, with these settings in keras.json."""
    (tmp_path / "keras.json").write_text(settings, encoding="utf-8")
    inherited = {name: value for name, value in os.environ.items() if name != "KERAS_BACKEND"}
    environment = {**inherited, "PYTHONPATH": str(ROOT), "KERAS_HOME": str(tmp_path), **environment}
    command = [sys.executable, "-c", CODE.format(before=before)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)


@pytest.mark.integration
def test_keras_json_does_not_select_the_backend(tmp_path):
    result = import_keras(tmp_path, '{"backend": "jax"}')
    assert (result.returncode, result.stdout) == (0, "tensorflow\n"), result.stderr


def test_only_training_supports_other_backends():
    for name in PROGRAMS:
        text = (ROOT / "launch" / f"{name}.py").read_text(encoding="utf-8")
        assert ("on_any_backend=True" in text) == (name == "train"), name


def test_errors_of_keras(tmp_path):
    run = "program.run(lambda argv: __import__('keras'), on_any_backend=True)"
    result = import_keras(tmp_path, '{"floatx": "float8"}', run)
    assert (result.returncode, result.stdout) == (1, "") and re.fullmatch("error: .*floatx=float8\n", result.stderr)
    result = import_keras(tmp_path, "{}", run, KERAS_BACKEND="nothing")
    assert (result.returncode, result.stdout) == (1, "") and re.fullmatch("error: .*nothing.*\n", result.stderr)

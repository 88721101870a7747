"""The program that prints a model's size."""

import subprocess
import sys

import pytest

from t2t_keras.config import Config, TransformerConfig
from t2t_keras.models import presets
from t2t_keras.runs.run import Run
from tests import programs


def describe(*arguments: str) -> subprocess.CompletedProcess:
    return programs.run(["-m", "launch.describe", *arguments], capture_output=True, text=True)


def test_big_is_described_without_being_made():
    """Which would take gigabytes and many seconds: what would make it is not even imported."""
    code = "import runpy, sys; sys.modules |= {'tensorflow': None, 'keras': None}; runpy.run_module('launch.describe')"
    command = [sys.executable, "-c", code.replace("describe'", "describe', run_name='__main__'")]
    command += ["--preset=big", "--vocab_size=37000"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "214,245,376" in done.stdout


def test_settings_vocabulary_and_length_count():
    done = describe("--vocab_size=8000", "--set", "model.d_ff=1024", "--set=model.norm_position=pre", "--length=100")
    assert done.returncode == 0, done.stderr
    assert "8,000" in done.stdout
    assert "1,024" in done.stdout
    assert " pre\n" in done.stdout
    assert "attention, 100 tokens per sentence" in done.stdout


def test_a_run_is_described_from_its_directory(tmp_path):
    (tmp_path / "vocab").write_bytes(b"vocabulary")
    config = Config(model=TransformerConfig(vocab_size=1234, d_model=64))
    Run(tmp_path / "run").start(config, tmp_path, tmp_path / "vocab")
    done = describe(f"--model_dir={tmp_path / 'run'}")
    assert done.returncode == 0, done.stderr
    assert "1,234" in done.stdout


def test_what_a_training_takes_on_devices():
    flags = ["--preset=base", "--devices=8", "--device=h100", "--length=30", "--pairs=4500000"]
    done = describe(*flags, "--utilisation=0.5", "--peak_tflops=100", "--link_gbytes=10")
    assert done.returncode == 0, done.stderr
    printed = " ".join(done.stdout.split())
    for text in ("63,082,496", "8 x h100 at 50% of 100 TFLOP/s", "442 MB per device 44.2 ms", "0.6 GB"):
        assert text in printed, text
    assert "8 x" not in describe("--preset=base").stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--preset=huge"], f"unknown preset 'huge'; valid: {', '.join(presets.PRESETS)}"),
        (["--vocab_size=0"], "--vocab_size must be a whole number of at least 1, got 0"),
        (["--model_dir=/nowhere"], "--model_dir=/nowhere: no such folder"),
        (["--preset=big", "--model_dir=/"], "give either --preset or --model_dir, not both"),
        (["--pairs=5"], "--pairs requires --devices"),
        (["base"], "unexpected argument 'base'"),
    ],
)
def test_bad_input_is_one_line_and_status_1(arguments, complaint):
    done = describe(*arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"error: {complaint}")
    assert done.stderr.count("\n") == 1

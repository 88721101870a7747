import subprocess
import sys

import pytest

from t2t_keras.config import Config, TransformerConfig
from t2t_keras.models import presets
from t2t_keras.runs.run import Run
from tests import programs


def describe(*arguments: str) -> subprocess.CompletedProcess:
    return programs.run(["-m", "launch.describe", *arguments], capture_output=True, text=True)


def test_describing_a_preset_does_not_create_the_model():
    """Creating the model would take gigabytes, so the program must not even import Keras."""
    code = "import runpy, sys; sys.modules |= {'tensorflow': None, 'keras': None}; runpy.run_module('launch.describe')"
    command = [sys.executable, "-c", code.replace("describe'", "describe', run_name='__main__'")]
    command += ["--preset=big", "--vocab_size=37000"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    assert "214,245,376" in result.stdout


def test_settings_vocabulary_and_length():
    result = describe("--vocab_size=8000", "--set", "model.d_ff=1024", "--set=model.norm_position=pre", "--length=100")
    assert result.returncode == 0, result.stderr
    assert "8,000" in result.stdout
    assert "1,024" in result.stdout
    assert " pre\n" in result.stdout
    assert "attention, 100 tokens per sentence" in result.stdout


def test_description_of_a_run(tmp_path):
    (tmp_path / "vocab").write_bytes(b"vocabulary")
    config = Config(model=TransformerConfig(vocab_size=1234, d_model=64))
    Run(tmp_path / "run").start(config, tmp_path, tmp_path / "vocab")
    result = describe(f"--model_dir={tmp_path / 'run'}")
    assert result.returncode == 0, result.stderr
    assert "1,234" in result.stdout


def test_forecast_for_devices():
    flags = ["--preset=base", "--devices=8", "--device=h100", "--length=30", "--pairs=4500000"]
    result = describe(*flags, "--utilisation=0.5", "--peak_tflops=100", "--link_gbytes=10")
    assert result.returncode == 0, result.stderr
    words = " ".join(result.stdout.split())
    for text in ("63,082,496", "8 x h100 at 50% of 100 TFLOP/s", "442 MB per device 44.2 ms", "0.6 GB"):
        assert text in words, text
    assert "8 x" not in describe("--preset=base").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--preset=huge"], f"unknown preset 'huge'; valid: {', '.join(presets.PRESETS)}"),
        (["--vocab_size=0"], "--vocab_size must be a whole number of at least 1, got 0"),
        (["--model_dir=/nowhere"], "--model_dir=/nowhere: no such folder"),
        (["--preset=big", "--model_dir=/"], "give either --preset or --model_dir, not both"),
        (["--pairs=5"], "--pairs requires --devices"),
        (["base"], "unexpected argument 'base'"),
    ],
)
def test_errors(arguments, message):
    result = describe(*arguments)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith(f"error: {message}")
    assert result.stderr.count("\n") == 1

"""What docs/python.md shows of the Transformer as a Keras model runs as it stands there."""

import pathlib
import re

import pytest

from t2t_keras.inference.translator import Translator
from t2t_keras.runs.run import Run
from t2t_keras.training.devices.strategy import make_strategy
from t2t_keras.training.trainer import Trainer
from tests.training import tiny_training

PAGE = pathlib.Path(__file__).parents[1] / "docs/python.md"


@pytest.mark.integration
def test_the_blocks_run_one_after_the_other(tmp_path, monkeypatch):
    section = re.split(r"^## ", PAGE.read_text("utf-8").partition("## As a Keras model\n")[2], flags=re.MULTILINE)[0]
    blocks = re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    assert len(section.splitlines()) <= 60
    data = tiny_training.make_data(tmp_path)
    config = tiny_training.make_config(data, max_steps=4)
    Trainer(Run(tmp_path / "runs/mine"), config, data, make_strategy("cpu")).train()
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for block in blocks:
        exec(compile(block, PAGE.name, "exec"), names)
    assert len(Translator.load("runs/tuned").translate(["ba do", "ge"])) == 2
    assert pathlib.Path("saved_models/logits/saved_model.pb").is_file()

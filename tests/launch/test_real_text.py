"""A short training run on real text reaches the same quality as before."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
UPDATES = 900

# The text and the settings of the quickstart, with a number of updates instead of minutes.
SESSION = """
import dataclasses, json, sys
from launch import quickstart
from t2t_keras import Run, ScoringSettings, Trainer, Translator, config, evaluate, make_strategy, prepare
from t2t_keras.data.sources import corpora
from t2t_keras.fitting.fit_steps import apply_choices
from t2t_keras.planning import fit_rules

strategy = make_strategy("cpu", replicas=1)
choices = fit_rules.choose(quickstart.PAIRS, 5, updates_per_minute=130)  # for two cores without AVX-512
vocab_size = next(choice.value for choice in choices if choice.name == "data.vocab_size")
wanted = dataclasses.replace(quickstart.DATA, vocab_size=vocab_size)
data = prepare(corpora.of_config(wanted, "downloads", report=print), wanted, "data", print)
ends = [f"train.max_steps={sys.argv[1]}", f"train.decay_steps={int(sys.argv[1]) // 5}"]
settings = config.override(apply_choices(choices, data.output_limit), ends)
model = dataclasses.replace(settings.model, **data.tokenizer.sizes)
run = Run("run")
Trainer(run, dataclasses.replace(settings, model=model, data=data.config), data, strategy).train()
result = evaluate(Translator.load(run.path), *data.text("test"), ScoringSettings(wanted.target_language))
print(json.dumps({score.name: score.value for score in result.scores}))
"""


@pytest.mark.slow
def test_quality_of_the_quickstart_model(tmp_path: Path) -> None:
    """Evaluates on 780 sentences of a project that is not in the training data."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1"}
    command = [sys.executable, "-c", SESSION, str(UPDATES)]
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=7200)
    assert result.returncode == 0, result.stderr
    scores = json.loads(result.stdout.splitlines()[-1])
    assert 20 < scores["BLEU"] < 28, scores

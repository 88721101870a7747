"""The steps of a fit, as far as they need no training."""

import json
from types import SimpleNamespace

import pytest

from t2t_keras.errors import InputError
from t2t_keras.fitting.fit_steps import FitSteps, Places
from t2t_keras.runs import checkpoints
from t2t_keras.runs.run import Run
from tests.inference import tiny


def test_a_folder_of_a_version_with_other_choices_is_refused(tmp_path):
    steps = FitSteps(Places(tmp_path / "data", tmp_path / "run", tmp_path / "serving"), print)
    steps.record.update(choices=[{"name": "preset", "value": "tiny", "reason": "usual"}])
    assert steps.choice("preset") == "tiny"
    with pytest.raises(InputError, match=r"run was started by a different version, which did not choose updates"):
        steps.choice("updates")


@pytest.mark.parametrize(
    ("metric", "kept"), [("bleu", ["step_00000001", "step_00000002"]), ("loss", ["step_00000002"])]
)
def test_the_weights_with_the_best_validation_are_kept(tmp_path, monkeypatch, metric, kept):
    """Of both checkpoints, whose mean has the larger value, and of the newest."""
    run = Run(tiny.make_run(tmp_path / "run"))
    config = json.loads(run.config_path.read_text())
    config["train"].update(best_metric=metric, validation_sentences=1)
    run.config_path.write_text(json.dumps(config))
    weights = checkpoints.load(run.checkpoints_path / checkpoints.step_name(1)).weights
    checkpoints.save(run.checkpoints_path, 2, weights, {}, {})

    def validated(self, translator, config, steps):
        return SimpleNamespace(name="some", steps=steps, arrays=weights, value=float(len(steps)))

    monkeypatch.setattr(FitSteps, "_validate", validated)
    steps = FitSteps(Places(tmp_path / "data", run.path, tmp_path / "serving"), print)
    steps.keep_better()
    assert steps.record["chosen"]["checkpoints"] == kept


def test_the_minutes_of_all_starts_add_up(tmp_path):
    steps = FitSteps(Places(tmp_path / "data", tmp_path / "run", tmp_path / "serving"), print)
    with steps.preparing():
        steps.record.update(preparing_minutes=7.0)
    with steps.preparing():
        pass
    assert steps.record["preparing_minutes"] >= 7.0

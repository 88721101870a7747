"""The steps of a fit, as far as they need no training."""

import pytest

from t2t_keras.errors import InputError
from t2t_keras.fitting.fit_steps import FitSteps, Places


def test_a_folder_of_a_version_with_other_choices_is_refused(tmp_path):
    steps = FitSteps(Places(tmp_path / "data", tmp_path / "run", tmp_path / "serving"), print)
    steps.record.update(choices=[{"name": "preset", "value": "tiny", "reason": "usual"}])
    assert steps.choice("preset") == "tiny"
    with pytest.raises(InputError, match=r"run was started by a different version, which did not choose updates"):
        steps.choice("updates")

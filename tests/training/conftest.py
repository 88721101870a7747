"""Fixtures of the tests of the training loop."""

import numpy as np
import pytest

from t2t_keras.training.step import TrainingStep
from t2t_keras.training.updates import StepMetrics
from t2t_keras.training.validation import Validation, Validator
from tests.training.tiny_training import make_data


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return make_data(tmp_path_factory.mktemp("data"))


@pytest.fixture
def scripted(monkeypatch):
    """Replaces training steps and validations by scripted results, for tests of the decisions of the loop.

    Returns a function that sets the validation losses; the last one is repeated.
    """

    def run(self, batches, steps):
        del batches
        numbers = int(self.step) + np.arange(1, steps + 1, dtype=np.float32)
        self.step.assign_add(steps)
        return StepMetrics(1 / numbers, np.full(steps, 10, np.float32), numbers / 1000, numbers)

    losses: list[float] = [1.0]

    def validate(self):
        del self
        loss = losses.pop(0) if len(losses) > 1 else losses[0]
        return Validation(loss, float(np.exp(loss)), None)

    monkeypatch.setattr(TrainingStep, "run", run)
    monkeypatch.setattr(Validator, "validate", validate)
    return lambda *values: losses.__setitem__(slice(None), values)

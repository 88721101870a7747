"""Custom models built from these layers learn on every installed backend."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import keras
import pytest

from tests import programs
from tests.layers import train_elsewhere

pytestmark = pytest.mark.integration

ROOT = pathlib.Path(__file__).parent.parent.parent
MARGIN = 0.01


def assert_learned(results: dict) -> None:
    classifier, copier, transformer, other_attention = (
        results[name] for name in ("classifier", "copier", "transformer", "other_attention")
    )
    assert classifier["accuracy"] > 0.98
    assert classifier["loss"][-1] < 0.1
    for losses in (copier["loss"], transformer["loss"], other_attention["loss"]):
        assert losses[-1] < losses[0] - 0.4
    for model in (transformer, other_attention):
        assert model["cache_error"] < 1e-5
        assert model["attention_error"] < 1e-5
    assert other_attention["block_error"] < 1e-5
    assert results["dropout"]["zeros"] == pytest.approx(0.3, abs=MARGIN)
    assert results["dropout"]["mean"] == pytest.approx(1.0, abs=MARGIN)
    assert results["dropout"]["agreement_of_equal_seeds"] == 1.0
    # Independent masks agree where both keep or both drop an element.
    assert results["dropout"]["agreement_of_other_seeds"] == pytest.approx(0.3**2 + 0.7**2, abs=MARGIN)


@pytest.mark.slow  # Two minutes of processor time; tests/training/on_jax also compares the steps of a Transformer.
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_on_another_backend(backend):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    if keras.backend.backend() == backend:
        pytest.skip(f"{backend} is this backend")
    done = subprocess.run(
        [sys.executable, train_elsewhere.__file__],
        env={
            **{**os.environ, **programs.QUICK_COMPILATION},
            **{"KERAS_BACKEND": backend, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    results = json.loads(done.stdout.splitlines()[-1])
    assert results["backend"] == backend
    assert_learned(results)
    expected = train_elsewhere.train_families(train_elsewhere.sentences(1024))
    assert results["families"].keys() == expected.keys()
    for family, losses in expected.items():
        assert results["families"][family] == pytest.approx(losses, rel=1e-4), family

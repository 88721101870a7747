"""Families without experts take the same steps on JAX and PyTorch, where they are installed, as on TensorFlow."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

TESTS = Path(__file__).parents[1]
PROGRAM = Path(__file__).with_name("train_families.py")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The results of a backend, which begins with the weights that TensorFlow drew."""
    folder = tmp_path_factory.mktemp("families")

    def on(backend: str) -> dict[str, np.ndarray]:
        path = folder / f"{backend}.npz"
        if not path.exists():
            paths = os.pathsep.join(map(str, (TESTS.parent, TESTS / "training")))
            # With several threads beside TensorFlow's, torch is slow in models as small as these.
            environment = {**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
            command = [sys.executable, PROGRAM, folder / "weights.npz", path]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr[-2000:]
        return dict(np.load(path))

    return on


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_twenty_steps_are_those_of_tensorflow(trained, backend):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    expected = trained("tensorflow")
    results = trained(backend)
    assert results.keys() == expected.keys()
    losses = [name for name in expected if name.endswith("/loss")]
    for name in losses:
        assert expected[name][-1] < expected[name][0] - 0.1
        np.testing.assert_allclose(results[name], expected[name], rtol=1e-4, err_msg=name)

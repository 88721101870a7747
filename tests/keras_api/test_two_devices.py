"""`fit` on two devices trains like `fit` on one."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from tests import programs
from tests.keras_api.promises import promise

pytestmark = pytest.mark.integration

FOLDER = pathlib.Path(__file__).parent


def assert_same_training(*names: str) -> None:
    """Runs `on_two_devices.py` and compares its trainings, which must have these names."""
    flags = f"{programs.QUICK_COMPILATION['XLA_FLAGS']} --xla_force_host_platform_device_count=2"
    environment = {**os.environ, "PYTHONPATH": str(FOLDER.parents[1]), "XLA_FLAGS": flags}
    command = [sys.executable, str(FOLDER / "on_two_devices.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
    actual = json.loads(done.stdout.splitlines()[-1])
    _, expected = actual.pop("one")
    assert expected[1] < expected[0]
    assert actual == {name: [2, pytest.approx(expected, rel=1e-5)] for name in names}


@promise("`fit` within `tf.distribute.MirroredStrategy`", jax="no", torch="no")
def test_two_replicas_train_like_one():
    assert_same_training("mirrored")


@promise("`keras.distribution`: `DataParallel`, `ModelParallel`", tensorflow="no", torch="no")
def test_split_batches_and_weights_train_like_unsplit_ones():
    assert_same_training("data_parallel", "model_parallel")

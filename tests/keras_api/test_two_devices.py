"""`fit` on two devices trains as on one."""

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


def check(*names: str) -> None:
    """Compares the trainings of `on_two_devices.py`, which must have these names."""
    flags = f"{programs.QUICK_COMPILATION['XLA_FLAGS']} --xla_force_host_platform_device_count=2"
    environment = {**os.environ, "PYTHONPATH": str(FOLDER.parents[1]), "XLA_FLAGS": flags}
    command = [sys.executable, str(FOLDER / "on_two_devices.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    _, expected = found.pop("one")
    assert expected[1] < expected[0]
    assert found == {name: [2, pytest.approx(expected, rel=1e-5)] for name in names}


@promise("`fit` within `tf.distribute.MirroredStrategy`", jax="no", torch="no")
def test_two_replicas_train_as_one():
    check("mirrored")


@promise("`keras.distribution`: `DataParallel`, `ModelParallel`", tensorflow="no", torch="no")
def test_split_batches_and_split_weights_train_as_whole_ones():
    check("data_parallel", "model_parallel")

"""A run resumes on JAX as on TensorFlow: same batches, losses and checkpoints."""

import importlib.util
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from t2t_keras.machine.remote import Mirror
from t2t_keras.runs.run import Run
from t2t_keras.training.trainer import Trainer
from tests import programs
from tests.programs import QUICK_COMPILATION
from tests.training.tiny_training import (
    assert_same_end,
    assert_same_numbers,
    launch_flags,
    make_config,
    make_data,
    make_devices,
    records,
    resume,
)
from tests.training.worker_processes import free_ports

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed"),
]

ROOT = pathlib.Path(__file__).parents[3]
STEPS, LAST = 3, 7  # steps on TensorFlow, and in total
TRAIN = {
    **{"static_shapes": True, "clip_norm": 1.0, "ema_decay": 0.9, "accumulation_steps": 2},
    **{"decay_steps": 2, "max_steps": STEPS, "validation_steps": STEPS, "frozen": ("encoder/*",)},
}
# The model has experts, which add a loss; `tests/layers/test_backends.py` compares the steps of all families in the
# slow ring. The model has no random numbers, since backends draw different ones.
MODEL = {"num_experts": 4, "experts_per_token": 2, "d_expert": 8, "gate_noise": False, "dropout_rate": 0.0}


def on_jax(arguments: list[str], **environment: str) -> subprocess.Popen:
    """Starts Python with Keras on JAX."""
    environment = {**os.environ, **QUICK_COMPILATION, "KERAS_BACKEND": "jax", "PYTHONPATH": str(ROOT), **environment}
    return subprocess.Popen([sys.executable, *arguments], env=environment, stderr=subprocess.PIPE, text=True)


def finished(process: subprocess.Popen) -> str:
    """Waits for a program and returns its standard error; asserts that it succeeded."""
    _, errors = process.communicate()
    assert process.returncode == 0, errors[-3000:]
    return errors


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return make_data(tmp_path_factory.mktemp("data"), longest=3)


@pytest.fixture(scope="module", autouse=True)
def compiled_once(tmp_path_factory):
    """The directory of JAX's compilation cache, since the processes compile the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
        patch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory, data):
    """A run that was resumed on TensorFlow and on JAX, and two runs on JAX, of which one was interrupted.

    On JAX the weights were split over devices, and the last step was repeated on TensorFlow.
    """
    folder, device = tmp_path_factory.mktemp("runs"), make_devices("cpu", 1)
    jax_run = Run(folder / "jax")
    Trainer(jax_run, make_config(data, MODEL, **TRAIN), data, device).train()
    for copy in ("tensorflow", "two"):
        shutil.copytree(jax_run.path, folder / copy)
    process = on_jax(["-m", "tests.training.on_jax.trainings", str(data.directory), str(folder), str(LAST - 1)])
    resume(Run(folder / "tensorflow"), data, LAST, device)
    finished(process)
    resume(jax_run, data, LAST, device, decay_steps=TRAIN["decay_steps"])
    return folder


@pytest.fixture(scope="module")
def steps(folder):
    """The results of `split_steps.py`."""
    return json.loads((folder / "steps.json").read_text())


def test_a_run_resumes_as_on_tensorflow(folder):
    assert_same_numbers(folder / "jax", folder / "tensorflow", tolerance=1e-5)
    assert [line["step"] for line in records(folder / "jax", "train")] == [*range(1, LAST + 1)]


def assert_same_steps(actual: dict, expected: dict) -> None:
    """Losses are equal to 1e-5, and norms, which are most sensitive to rounding, to 1e-4."""
    for metric, tolerance in (("loss", 1e-5), ("gradient_norm", 1e-4)):
        assert len(actual[metric]) == len(expected[metric]) > 0
        for step, (number, expected_number) in enumerate(zip(actual[metric], expected[metric], strict=True), 1):
            assert math.isclose(number, expected_number, rel_tol=tolerance), (
                f"{metric} of step {step}: {number}, not {expected_number}"
            )


def test_split_weights_learn_as_whole_ones(steps):
    """With clipped norms, two accumulated parts and a moving average, on one replica of four devices."""
    assert_same_steps(steps["(2, 2)"], steps["(1, 1)"])
    assert len(steps["(2, 2)"]["loss"]) == 20


def test_one_device_resumes_the_state_of_four(steps):
    assert_same_steps(steps["(1, 1) resumed"], steps["(2, 2) resumed"])


def test_the_devices_of_a_replica_have_the_dropout_of_one_device(steps):
    assert_same_steps(steps["(1, 4) with dropout"], steps["(1, 1) with dropout"])
    assert len(steps["(1, 4) with dropout"]["loss"]) == 20
    assert not math.isclose(steps["(1, 4) with dropout"]["loss"][0], steps["(1, 1)"]["loss"][0], rel_tol=1e-3)


def test_a_device_holds_its_part_of_weights_moments_and_averages(steps):
    """All except norms and output biases, which are a sixteenth of such a small model."""
    assert steps["(1, 1)"]["held"] == [steps["(1, 1)"]["whole"]]
    for mesh, parts in (("(2, 2)", 2), ("(1, 4) with dropout", 4)):
        total_bytes = steps[mesh]["whole"]
        assert total_bytes == steps["(1, 1)"]["whole"]
        assert steps[mesh]["held"] == [total_bytes // 16 + total_bytes * 15 // 16 // parts] * 4


def test_an_interruption_changes_nothing(folder):
    """On 2 x 2 devices with dropout; CTranslate2 translates sentences of the validation set."""
    assert_same_end(folder / "killed", folder / "uninterrupted", 4)
    assert [line["bleu"] >= 0 for line in records(folder / "killed", "valid")] == [True, True]


def test_two_processes_train_as_one(folder, data, tmp_path, monkeypatch):
    """Each process has a separate disk, the run is in object storage, and each splits the weights over two devices."""
    url = f"file://{tmp_path}/store/two"
    monkeypatch.setenv("T2T_KERAS_CACHE", str(tmp_path / "own"))
    mirror = Mirror(url)
    shutil.copytree(folder / "two", mirror.path, dirs_exist_ok=True)
    mirror.publish()
    ports = free_ports(2)
    flags = [f"--data_dir={data.directory}", f"--model_dir={url}", f"--set=train.max_steps={LAST}"]
    flags += ["--strategy=cpu", "--replicas=1", "--model_parallel=2"]
    cluster = ", ".join(f'"localhost:{port}"' for port in ports)
    processes = [
        on_jax(
            ["-m", "tests.training.launch_quickly", *flags],
            TF_CONFIG=f'{{"cluster": {{"worker": [{cluster}]}}, "task": {{"type": "worker", "index": {index}}}}}',
            T2T_KERAS_CACHE=str(tmp_path / f"disk_{index}"),
        )
        for index in range(2)
    ]
    errors = [finished(process) for process in processes]
    assert "2 replicas of 2 devices" in errors[0]
    mirror.fetch()
    assert_same_numbers(mirror.path, folder / "tensorflow", tolerance=1e-5)


def test_unsupported_settings_are_named(folder):
    assert json.loads((folder / "refusals.json").read_text()) == {
        "none": "4 replicas on cpu",
        "static_shapes": "Keras on JAX needs --set train.static_shapes=true: XLA recompiles for every shape",
        "strategy": "--strategy=mirrored needs TensorFlow; valid on JAX: auto (all devices), cpu",
        "replicas": "--replicas=5, but JAX has 4 devices here",
        "search": (
            "train.validation_sentences=1: on JAX sentences are translated by CTranslate2, which does not support "
            "model.num_experts=4; 0 disables these translations"
        ),
        "odd devices": (
            "--model_parallel=3 does not divide the devices that JAX has in each process, 4; --replicas=N uses as "
            "many of them as N replicas need, and divides a CPU into as many"
        ),
        "few devices": "--replicas=2 of --model_parallel=3 devices each, but JAX has 4 devices here",
        "no devices": "--model_parallel must be at least 1, got 0",
        "heads": "--model_parallel=4 does not divide model.num_heads=2",
    }


def test_a_new_run_has_static_shapes_by_itself(data, tmp_path):
    flags = [flag for flag in launch_flags(tmp_path / "run", data, max_steps=1) if "train.static_shapes" not in flag]
    process = on_jax(["-m", "launch.train", *flags, "--set=train.static_shapes=false", f"--model_dir={tmp_path}/false"])
    finished(on_jax(["-m", "launch.train", *flags]))
    assert Run(tmp_path / "run").config.train.static_shapes
    needed = "Keras on JAX needs --set train.static_shapes=true: XLA recompiles for every shape"
    assert process.communicate()[1].endswith(f"error: {needed}\n") and process.returncode == 1
    later = [*flags, "--set=train.max_steps=2"]
    done = programs.run(["-m", "launch.train", *later], capture_output=True, text=True)
    assert done.returncode == 0 and "resumed from step 1" in done.stderr, done.stderr
    assert Run(tmp_path / "run").config.train.static_shapes

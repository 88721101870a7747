"""How much of a batch fits: what is tried, what is noted, and the real thing under a limit of memory."""

import dataclasses
import json
import os
import pathlib
import re
import resource
import subprocess
import sys

import pytest
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.runs.run import Run
from t2t_keras.training.devices import micro_batch, strategy
from t2t_keras.training.devices.micro_batch import MicroBatch, candidates, find_micro_batch, fit_to_memory
from t2t_keras.training.devices.strategy import LocalDevices, find_devices
from t2t_keras.training.devices.workers import Workers
from tests.training.tiny_training import make_config, make_data, records, state

ROOT = pathlib.Path(__file__).parents[3]
ONE_CPU = LocalDevices("cpu", 1, 1, 0)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return make_data(tmp_path_factory.mktemp("micro_batch"), train_pairs=1200)


@pytest.fixture
def memory(monkeypatch):
    """A device on which so many parts fit, and what was tried on it."""

    class Memory:
        least_parts = 4
        tried: list[int] = []  # noqa: RUF012

    def attempt(run, config, data, devices):
        Memory.tried.append(config.train.accumulation_steps)
        return "" if config.train.accumulation_steps >= Memory.least_parts else "out of memory"

    Memory.tried.clear()
    monkeypatch.setattr(micro_batch, "_try", attempt)
    return Memory


def fitted(folder, config, data, devices, report=print):
    """The configuration of a training on one worker."""
    finding = find_micro_batch(Run(folder), config, data, devices, report)
    return fit_to_memory(Run(folder), config, finding, Workers(tf.distribute.get_strategy()))


@pytest.mark.parametrize(
    ("tokens_per_batch", "replicas", "longest", "expected"),
    [
        (1000, 1, 100, [(1024, 1), (512, 2), (256, 4), (128, 8)]),
        (1024, 1, 128, [(1024, 1), (512, 2), (256, 4), (128, 8)]),
        (25_000, 8, 256, [(4096, 1), (2048, 2), (1024, 4), (512, 7), (256, 13)]),
        (100, 1, 100, [(128, 1)]),
        (100, 8, 100, [(16, 1)]),
        (1, 1, 1, [(1, 1)]),
    ],
)
def test_powers_of_two_from_the_whole_share_to_a_long_pair(tokens_per_batch, replicas, longest, expected):
    assert candidates(tokens_per_batch, replicas, longest) == [MicroBatch(*pair) for pair in expected]


def test_the_largest_that_fits_is_taken_and_noted(tmp_path, data, memory):
    config = make_config(data, tokens_per_batch=1000, accumulation_steps=7)
    lines = []
    expected = dataclasses.replace(config.train, accumulation_steps=4)
    assert fitted(tmp_path, config, data, ONE_CPU, lines.append) == dataclasses.replace(config, train=expected)
    assert memory.tried == [1, 2, 4]
    assert lines == [
        "1,024 tokens on a device at once, 1 part: too much (out of memory)",
        "512 tokens on a device at once, 2 parts: too much (out of memory)",
        "256 tokens on a device at once, 4 parts: fits",
    ]
    assert json.loads((tmp_path / "micro_batch.json").read_text())["tokens"] == 256

    later = dataclasses.replace(config, train=dataclasses.replace(config.train, max_steps=99, log_steps=3))
    assert fitted(tmp_path, later, data, ONE_CPU, lines.append).train.accumulation_steps == 4
    assert memory.tried == [1, 2, 4]


@pytest.mark.parametrize("change", ["tokens_per_batch", "devices", "model", "damage"])
def test_under_other_conditions_it_is_searched_for_again(tmp_path, data, memory, change):
    settings, devices = {"tokens_per_batch": 1000}, ONE_CPU
    fitted(tmp_path, make_config(data, **settings), data, devices)
    memory.tried.clear()
    if change == "tokens_per_batch":
        settings["tokens_per_batch"] = 1001
    if change == "model":
        settings["model"] = {"d_ff": 64}
    if change == "devices":
        devices = LocalDevices("cpu", 2, 2, 0)
    if change == "damage":
        (tmp_path / "micro_batch.json").write_text("{")
    fitted(tmp_path, make_config(data, **settings), data, devices)
    assert memory.tried == [1, 2, 4]


@pytest.mark.parametrize("index", [0, 1, 2])
def test_workers_take_the_smallest_of_what_they_found(monkeypatch, tmp_path, data, index):
    """However differently, and whoever has which; only the first one notes it."""
    findings = [MicroBatch(128, 2, {"x": 1}), MicroBatch(32, 8, {"x": 1}), MicroBatch(64, 4, {"x": 1})]
    workers = Workers(tf.distribute.get_strategy())
    workers.index, workers.is_chief = index, index == 0

    def gather(own):
        assert json.loads(own) == [*findings[index][:2]]
        return [json.dumps(other[:2]).encode() for other in findings]

    monkeypatch.setattr(workers, "gather", gather)
    config = fit_to_memory(Run(tmp_path / "run"), make_config(data), findings[index], workers)
    assert config.train.accumulation_steps == 8
    assert Run(tmp_path / "run").micro_batch == ({} if index else {**findings[1]._asdict()})


def test_nothing_is_noted_before_the_workers_agree(tmp_path, data, memory):
    """A worker that starts later would take the note for its own."""
    assert find_micro_batch(Run(tmp_path), make_config(data), data, ONE_CPU, print).accumulation_steps == 4
    assert list(tmp_path.iterdir()) == []


def test_when_nothing_fits(tmp_path, data, memory):
    memory.least_parts = 10**9
    with pytest.raises(InputError, match=r"not even 8 tokens on a device at once fit.*\(out of memory\)"):
        fitted(tmp_path, make_config(data), data, ONE_CPU)


@pytest.mark.parametrize(
    ("gpus", "arguments", "expected"),
    [
        (0, ("auto", 0), LocalDevices("cpu", 1, 1, 0)),
        (0, ("cpu", 8), LocalDevices("cpu", 8, 8, 0)),
        (4, ("auto", 0), LocalDevices("mirrored", 4, 4, 0)),
        (4, ("mirrored", 2), LocalDevices("mirrored", 2, 2, 0)),
        (4, ("cpu", 0), LocalDevices("cpu", 1, 1, 0)),
        (4, ("multiworker", 0), LocalDevices("mirrored", 4, 12, 2)),
        (0, ("multiworker", 0), LocalDevices("cpu", 1, 3, 2)),
    ],
)
def test_devices_are_counted_without_being_taken(monkeypatch, gpus, arguments, expected):
    monkeypatch.setattr(strategy.tf.config, "list_physical_devices", lambda kind: [kind] * gpus)
    if expected.worker:
        workers = {"cluster": {"worker": ["a:1", "b:1", "c:1"]}, "task": {"type": "worker", "index": 2}}
        monkeypatch.setenv("TF_CONFIG", json.dumps(workers))
    assert find_devices(*arguments) == expected


@pytest.mark.parametrize(
    ("gpus", "arguments", "message"),
    [
        (0, ("mirrored", 0), "--strategy=mirrored found no GPU"),
        (0, ("multiworker", 0), "--strategy=multiworker found no TF_CONFIG"),
        (0, ("auto", -1), "--replicas must not be negative"),
        (0, ("banana", 0), "unknown strategy 'banana'"),
        (4, ("auto", 5), "--replicas=5, but there are 4 GPUs"),
    ],
)
def test_devices_that_there_are_not_are_refused_before_anything_is_tried(monkeypatch, gpus, arguments, message):
    monkeypatch.setattr(strategy.tf.config, "list_physical_devices", lambda kind: [kind] * gpus)
    with pytest.raises(InputError, match=message):
        find_devices(*arguments)


def test_a_tpu_is_refused(monkeypatch):
    monkeypatch.setenv("TPU_NAME", "local")
    with pytest.raises(InputError, match="on a TPU no batch can be tried beforehand: set train.accumulation_steps"):
        find_devices()


@pytest.mark.integration
def test_settings_that_are_at_fault_are_an_error(tmp_path, data):
    with pytest.raises(InputError, match="batch fits: --replicas must not be negative, got -1$"):
        micro_batch._try(Run(tmp_path), make_config(data), data, LocalDevices("cpu", -1, 1, 0))
    assert list(tmp_path.iterdir()) == []


# A model whose inner layers take about a quarter of a megabyte a token.
WIDE = {"d_model": 64, "d_ff": 16384, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 1}
# The address space that a try took at most. With one arena and on one core it differs little from time to time.
PEAK = """
import json, pathlib, re, sys
from t2t_keras.config import Config
from t2t_keras.training.devices.micro_batch import LocalDevices, _train_once

if __name__ == "__main__":
    _train_once(Config.from_dict(json.loads(sys.argv[1])), sys.argv[2], LocalDevices("cpu", 1, 1, 0), sys.argv[3])
    print(re.search(r"VmPeak:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])
"""
ENVIRONMENT = {**os.environ, "MALLOC_ARENA_MAX": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}


def peak(config, data, parts, folder) -> int:
    """Bytes."""
    settings = config.to_dict()
    settings["train"]["accumulation_steps"] = parts
    command = [sys.executable, "-c", PEAK, json.dumps(settings), str(data.directory), str(folder / str(parts))]
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, check=True, preexec_fn=take_one_core)
    return int(done.stdout) * 1024


def take_one_core():
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


@pytest.mark.slow
def test_under_a_limit_of_memory_training_runs_in_the_parts_that_fit(tmp_path, data):
    config = make_config(data, WIDE, tokens_per_batch=8192, max_steps=4, validation_steps=4)
    limit = (peak(config, data, 2, tmp_path) + peak(config, data, 4, tmp_path)) // 2
    settings = {f"model.{name}": value for name, value in WIDE.items()}
    settings |= {"train.tokens_per_batch": 8192, "train.log_steps": 1, "train.warmup_steps": 20}

    def set_limit():
        take_one_core()
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    def train(model_dir, steps, *more, limited=True):
        flags = [f"--set={name}={value}" for name, value in {**settings, "train.max_steps": steps}.items()]
        command = [sys.executable, "-m", "launch.train", "--preset=tiny", f"--data_dir={data.directory}", *flags]
        return subprocess.run(
            [*command, f"--model_dir={model_dir}", "--strategy=cpu", *more],
            cwd=ROOT,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            preexec_fn=set_limit if limited else take_one_core,
        )

    found = train(tmp_path / "run", 2, "--fit_to_memory")
    assert found.returncode == 0, found.stderr
    lines = [line for line in found.stderr.splitlines() if "on a device at once" in line]
    # What is too much at the brink differs from time to time, but the whole batch always is.
    assert lines[0].startswith("8,192 tokens on a device at once, 1 part: too much (")
    assert all(": too much (" in line for line in lines[:-1]) and lines[-1].endswith("parts: fits")
    parts = int(re.search(r", (\d+) parts: fits", lines[-1])[1])
    assert parts == 2 ** (len(lines) - 1) == Run(tmp_path / "run").config.train.accumulation_steps
    assert not list((tmp_path / "run").glob("micro_batch_try*"))

    resumed = train(tmp_path / "run", 4, "--fit_to_memory")
    assert resumed.returncode == 0, resumed.stderr
    assert "on a device at once" not in resumed.stderr
    assert len(records(tmp_path / "run", "train")) == 4

    expected = train(tmp_path / "expected", 4, f"--set=train.accumulation_steps={parts}", limited=False)
    assert expected.returncode == 0, expected.stderr
    assert records(tmp_path / "run", "train") == records(tmp_path / "expected", "train")
    for name, array in state(tmp_path / "expected", 4).items():
        assert (array == state(tmp_path / "run", 4)[name]).all()

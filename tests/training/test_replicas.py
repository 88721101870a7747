"""Eight replicas over hundreds of steps, and checkpoints that resume with a different number of replicas."""

import json
import os
import pathlib
import shutil
from typing import Any

import numpy as np
import pytest

from tests import programs
from tests.training import tiny_training
from tests.training.tiny_training import assert_same_numbers, records

pytestmark = pytest.mark.integration

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]
STEPS = 200
EXACT = 1e-5


def run_program(*arguments: object) -> None:
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(ROOT)}
    done = programs.run([*map(str, arguments)], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr


def long_trajectory(folder: pathlib.Path, replicas: int, **case: Any) -> dict[str, np.ndarray]:
    """Runs `trajectories.trajectory` in a program with logical devices."""
    case = {"replicas": replicas, "steps": STEPS, "check_replicas": replicas > 1, **case}
    cases, results = folder / f"{replicas}.json", folder / f"{replicas}.npz"
    cases.write_text(json.dumps({"case": case}), encoding="utf-8")
    run_program(HERE / "trajectories.py", cases, results)
    return {name.removeprefix("case:"): array for name, array in np.load(results).items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "train, model, tolerance",
    [
        ({}, {}, EXACT),
        ({"accumulation_steps": 3}, {}, EXACT),
        ({"steps_per_call": 25}, {}, EXACT),
        ({"clip_norm": 0.5, "ema_decay": 0.9}, {}, EXACT),
        # Shares round their gradients to bfloat16 before the sum; at a low rate, this error does not grow.
        ({"mixed_bfloat16": True, "learning_rate_scale": 0.05, "warmup_steps": 100}, {"norm_position": "pre"}, 2e-3),
        ({"static_shapes": True, "jit_compile": True}, {}, EXACT),
        # Each token uses all experts. With fewer, rounding eventually changes a token's expert.
        ({}, {"num_experts": 3, "experts_per_token": 3, "gate_noise": False, "balance_weight": 1.0}, EXACT),
    ],
    ids=["plain", "accumulation", "steps_per_call", "clipping_and_average", "bfloat16", "compiled", "experts"],
)
def test_eight_replicas_stay_with_one(tmp_path, train, model, tolerance):
    """The losses are the same in every step; `check_replicas` asserts that all replicas end with the same bits."""
    one, eight = (long_trajectory(tmp_path, replicas, train=train, model=model) for replicas in (1, 8))
    assert eight["loss"].shape == (STEPS,)
    assert one["loss"][-20:].mean() < one["loss"][:20].mean() - 0.1
    np.testing.assert_array_equal(eight["tokens"], one["tokens"])
    np.testing.assert_allclose(eight["loss"], one["loss"], rtol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize(
    "train, tolerance",
    [
        ({}, EXACT),
        ({"accumulation_steps": 2, "steps_per_call": 25, "log_steps": 25}, EXACT),
        ({"static_shapes": True, "jit_compile": True}, EXACT),
        ({"mixed_bfloat16": True, "learning_rate_scale": 0.05}, 2e-3),
    ],
    ids=["plain", "accumulation_and_steps_per_call", "compiled", "bfloat16"],
)
def test_launch_train_on_eight_replicas_stays_with_one(tmp_path, train, tolerance):
    """Runs the program, including validation; batches at the end of an epoch have few rows."""
    data = tiny_training.make_data(tmp_path)
    settings = {"max_steps": STEPS, "checkpoint_steps": STEPS, "tokens_per_batch": 60}
    # At a high rate, a difference in the last bit would grow tenfold every twenty steps.
    settings |= {"learning_rate_scale": 0.3, "warmup_steps": 100, **train}
    model = {"dropout_rate": 0.0, "norm_position": "pre"}
    for replicas in (1, 8):
        flags = tiny_training.launch_flags(tmp_path / str(replicas), data, model=model, **settings)
        run_program("-m", "launch.train", "--strategy=cpu", f"--replicas={replicas}", *flags)
    lines = records(tmp_path / "8", "train")
    assert len(lines) == STEPS // settings.get("log_steps", 1) and lines[-1]["step"] == STEPS
    assert lines[-1]["loss"] < 0.9 * lines[0]["loss"]
    for line, expected in zip(lines, records(tmp_path / "1", "train"), strict=True):
        assert line["loss"] == pytest.approx(expected["loss"], rel=tolerance), line["step"]
    (valid,), (expected,) = (records(tmp_path / name, "valid") for name in ("8", "1"))
    assert valid["loss"] == pytest.approx(expected["loss"], rel=tolerance)


@pytest.mark.slow
def test_a_checkpoint_of_eight_replicas_resumes_with_any_number(tmp_path):
    """On one, two, four and eight replicas, losses and validations are the same, since the global batch is."""
    data = tiny_training.make_data(tmp_path)

    def train(name: str, replicas: int, max_steps: int) -> None:
        model = {"dropout_rate": 0.0, "use_attention_bias": False}
        flags = tiny_training.launch_flags(tmp_path / name, data, model=model, max_steps=max_steps)
        run_program("-m", "launch.train", "--strategy=cpu", f"--replicas={replicas}", *flags)

    train("half", 8, 12)
    counts = (8, 1, 2, 4)
    for replicas in counts:
        shutil.copytree(tmp_path / "half", tmp_path / f"on_{replicas}")
        train(f"on_{replicas}", replicas, 24)
    for replicas in counts[1:]:
        assert_same_numbers(tmp_path / f"on_{replicas}", tmp_path / "on_8", EXACT)
        assert records(tmp_path / f"on_{replicas}", "train")[-1]["step"] == 24

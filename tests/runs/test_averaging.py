"""Averages: exact results, and checks of the averaged checkpoints."""

import dataclasses

import numpy as np
import pytest

from t2t_keras.config import Config, TrainConfig, TransformerConfig
from t2t_keras.errors import InputError
from t2t_keras.runs import averaging, checkpoints
from tests.training.checkpoint_arrays import arrays


def save(directory, step: int, weights=None, **state):
    return checkpoints.save(directory, step, weights or arrays(step), {"m": np.zeros(2)}, {"epoch": 0, **state})


def test_averages_are_the_mean(tmp_path):
    loaded = [checkpoints.load(save(tmp_path, step)) for step in (1, 2, 3)]
    averaged = averaging.average(loaded)
    for name, array in averaged.items():
        stacked = np.stack([arrays(step)[name] for step in (1, 2, 3)])
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, stacked.mean(axis=0, dtype=np.float64).astype(np.float32))
    for name, array in averaging.average(loaded[:1]).items():
        np.testing.assert_array_equal(array, arrays(1)[name])


def test_averages_are_summed_in_float64(tmp_path):
    values = [1.0] + [2.0**-25] * 8  # In float32, each small value would vanish in the sum.
    loaded = [checkpoints.load(save(tmp_path, i, weights={"w": np.float32(v)})) for i, v in enumerate(values)]
    assert averaging.average(loaded)["w"] == np.float32(sum(values) / 9)
    assert averaging.average(loaded)["w"] != np.float32(1.0) / np.float32(9.0)


@pytest.mark.parametrize(
    ("epochs", "steps", "covered"),
    [
        (1, [70, 80], 1),
        (1.5, [60, 70, 80], 1.5),
        (2, [50, 60, 70, 80], 2),
        (2.5, [50, 60, 70, 80], 2),
        (0.1, [80], 0.1),
    ],
)
def test_the_last_epochs_contain_the_checkpoints_saved_in_them(tmp_path, epochs, steps, covered):
    for step in (50, 60, 70, 80):
        save(tmp_path, step, epochs=step / 20)
    members, covered_epochs = averaging.of_last_epochs(tmp_path, epochs)
    assert [member.step for member in members] == steps
    assert covered_epochs == pytest.approx(covered)


def test_a_checkpoint_without_an_epoch_is_rejected(tmp_path):
    save(tmp_path, 50)
    with pytest.raises(InputError, match="step_00000050 does not record its epoch"):
        averaging.of_last_epochs(tmp_path, 1)


def test_checkpoints_of_different_models_are_rejected(tmp_path):
    first = checkpoints.load(save(tmp_path, 1))
    names = checkpoints.load(save(tmp_path, 2, weights={"file": arrays(1)["file"], "other": np.zeros(2)}))
    with pytest.raises(
        InputError, match=r"step_00000002 does not fit .*step_00000001: .*encoder/layer_0/kernel, .*other"
    ):
        averaging.average([first, names])
    shapes = checkpoints.load(save(tmp_path, 3, weights=arrays(1, size=13)))
    with pytest.raises(InputError, match=r"kernel has shape \(3, 13\) and \(3, 12\)"):
        averaging.average([first, shapes])


def test_checkpoints_of_different_configurations_are_rejected(tmp_path):
    config = Config(model=TransformerConfig(num_heads=8))
    configs = {
        2: dataclasses.replace(config, train=TrainConfig(max_steps=7)),  # may differ within a run
        3: Config(model=TransformerConfig(num_heads=4)),  # has the same shapes
        4: dataclasses.replace(config, train=TrainConfig(seed=2)),  # has different initial weights
    }
    first = checkpoints.load(save(tmp_path, 1, config=config.to_dict()))
    second, *foreign = (checkpoints.load(save(tmp_path, s, config=c.to_dict())) for s, c in configs.items())
    assert averaging.average([first, second]).keys() == arrays(1).keys()
    for checkpoint, difference in zip(foreign, ["num_heads: 8 -> 4", "train.seed: 1 -> 2"], strict=True):
        message = (
            rf"step_0000000{checkpoint.step} was trained with different settings from .*step_00000001: .*{difference}"
        )
        with pytest.raises(InputError, match=message):
            averaging.average([first, second, checkpoint])
    without_config = checkpoints.load(save(tmp_path, 5))  # has no configuration
    assert averaging.average([first, without_config]).keys() == arrays(1).keys()


@pytest.mark.parametrize(
    "steps, expected",
    [([], []), ([10], []), ([20, 10, 30], []), ([30, 10, 20, 27], [(20, 27), (27, 30)]), ([5, 5], [(5, 5)])],
)
def test_close_steps(steps, expected):
    assert averaging.close_steps(steps, 10) == expected


@pytest.mark.parametrize(
    "steps, expected", [([10], None), ([0], None), ([20, 10], None), ([10, 21], (10, 21)), ([5, 40, 1], (1, 40))]
)
def test_excessive_span(steps, expected):
    assert averaging.excessive_span(steps) == expected


def test_averages_keep_their_dtype(tmp_path):
    loaded = [checkpoints.load(save(tmp_path, step, weights={"w": np.full(3, step, np.float64)})) for step in (1, 2)]
    assert averaging.average(loaded)["w"].dtype == np.float64

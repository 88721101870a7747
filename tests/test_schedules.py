import keras
import numpy as np
import pytest

from t2t_keras.schedules import PaperSchedule, decay_to_zero, learning_rate


@pytest.mark.parametrize(("step", "rate"), [(1, 1.746928e-7), (4000, 6.987712e-4), (100_000, 1.397542e-4)])
def test_learning_rates_of_the_paper(step, rate):
    assert float(learning_rate(step, d_model=512, warmup_steps=4000)) == pytest.approx(rate, rel=1e-6)


def test_rate_rises_linearly_and_falls_with_the_square_root():
    rates = [float(learning_rate(step, 512, 100)) for step in (10, 20, 100, 400)]
    assert rates[1] == pytest.approx(2 * rates[0], rel=1e-6)
    assert rates[2] == max(rates)
    assert rates[3] == pytest.approx(rates[2] / 2, rel=1e-6)


def test_hold_steps():
    steps = (50, 100, 250, 400, 401, 1600)
    rates = [float(learning_rate(step, 512, 100, hold_steps=300)) for step in steps]
    highest = float(learning_rate(100, 512, 100))
    assert rates == pytest.approx([highest * share for share in (0.5, 1, 1, 1, (400 / 401) ** 0.5, 0.5)], rel=1e-6)


def test_decay_to_zero_at_the_end():
    factors = [float(decay_to_zero(step, 100, 4)) for step in (1, 97, 98, 99, 100)]
    assert factors == pytest.approx([1, 1, 0.75, 0.5, 0.25])


def test_integer_tensors_as_steps():
    step = keras.ops.convert_to_tensor(4000, "int64")
    assert float(learning_rate(step, 512, 4000)) == pytest.approx(6.987712e-4, rel=1e-6)


def test_optimizers_apply_the_schedule_from_step_1():
    """Keras counts updates from 0; with SGD, each step changes a weight by the rate times the gradient, here 1."""
    weight = keras.Variable(np.zeros(1, "float32"))
    optimizer = keras.optimizers.SGD(PaperSchedule(512, 4000))
    expected = 0.0
    for step in (1, 2, 3):
        optimizer.apply([np.ones(1, "float32")], [weight])
        expected -= 512**-0.5 * step * 4000**-1.5
        assert float(weight[0]) == pytest.approx(expected, rel=1e-5)


def test_schedule_is_saved_with_the_optimizer():
    schedule = PaperSchedule(256, 2000, 2.0)
    config = keras.optimizers.Adam(schedule).get_config()
    copy = keras.optimizers.Adam.from_config(config)._learning_rate
    assert isinstance(copy, PaperSchedule)
    assert copy.get_config() == schedule.get_config() == {"d_model": 256, "warmup_steps": 2000, "scale": 2.0}


@pytest.mark.parametrize("sizes", [{"d_model": 512, "warmup_steps": 0}, {"d_model": 0, "warmup_steps": 4000}])
def test_sizes_below_1_are_rejected(sizes):
    name = next(name for name, size in sizes.items() if not size)
    with pytest.raises(ValueError, match=f"`{name}` must be a whole number of at least 1, got 0"):
        PaperSchedule(**sizes)


@pytest.mark.parametrize("scale", [0, -1.0, float("nan"), "2"])
def test_scales_not_above_0_are_rejected(scale):
    with pytest.raises(ValueError, match="`scale` must be a finite number above 0, got"):
        PaperSchedule(512, scale=scale)

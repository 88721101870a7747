"""The order of waiting work and the forecast of its time, as functions of numbers."""

import pytest

from t2t_keras.serving.ordering import Pace, cost_class, is_large, urgency


def first(now, *waiting):
    """Which of some (arrived, cost) is the most urgent."""
    return max(waiting, key=lambda row: urgency(*row, now))


@pytest.mark.parametrize(
    ("cost", "number"), [(0, 0), (128, 0), (129, 1), (512, 1), (513, 2), (2048, 2), (2049, 3), (8192, 3), (8193, 4)]
)
def test_classes_of_cost(cost, number):
    assert cost_class(cost) == number
    assert is_large(number) == (cost > 512)


def test_of_the_same_cost_the_first_to_come_goes_first():
    assert first(9.0, (3.0, 100), (2.0, 100), (5.0, 100)) == (2.0, 100)


def test_of_those_that_come_together_the_shortest_goes_first():
    assert first(5.0, (5.0, 4000), (5.0, 94), (5.0, 600)) == (5.0, 94)


def test_a_short_one_overtakes_long_ones_that_wait_already():
    """Eight clients that send 4,096 letters each held up sentences for five seconds."""
    long_ones = [(0.5 * number, 4128) for number in range(8)]
    assert first(4.0, (4.0, 94), *long_ones) == (4.0, 94)


def test_a_long_one_goes_once_it_has_waited_in_proportion_to_its_cost():
    """Short ones come without end, each to wait a tenth of a second."""
    waited = next(now for now in range(100) if first(now, (0.0, 4128), (now - 0.1, 94)) == (0.0, 4128))
    assert 4 < waited < 12


def test_a_pace_is_what_was_measured_but_only_after_some_batches():
    pace = Pace(batch_cost=8000)
    assert pace.seconds({0: 1000, 3: 1000}) == 0
    pace.measure(0, 800, 5.0)
    assert pace.seconds({0: 1000}) < 0.1
    for _ in range(100):
        pace.measure(0, 800, 4.0)
        pace.measure(3, 4000, 40.0)
    assert pace.seconds({0: 1000}) == pytest.approx(5.0, rel=0.01)
    assert pace.seconds({0: 1000, 3: 100}) == pytest.approx(6.0, rel=0.01)


def test_a_pace_follows_what_changes():
    pace = Pace(batch_cost=100)
    for seconds in (10.0, 1.0):
        for _ in range(60):
            pace.measure(1, 100, seconds)
    assert pace.seconds({1: 100}) == pytest.approx(1.0, rel=0.1)

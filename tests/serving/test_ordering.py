"""The priority of waiting requests, and the forecast of their time."""

import pytest

from t2t_keras.serving.ordering import Pace, cost_class, is_large, urgency


def most_urgent(now, *waiting):
    """The most urgent of some (arrival, cost)."""
    return max(waiting, key=lambda row: urgency(*row, now))


@pytest.mark.parametrize(
    ("cost", "number"), [(0, 0), (128, 0), (129, 1), (512, 1), (513, 2), (2048, 2), (2049, 3), (8192, 3), (8193, 4)]
)
def test_classes_of_cost(cost, number):
    assert cost_class(cost) == number
    assert is_large(number) == (cost > 512)


def test_equal_costs_run_in_order_of_arrival():
    assert most_urgent(9.0, (3.0, 100), (2.0, 100), (5.0, 100)) == (2.0, 100)


def test_simultaneous_arrivals_run_in_order_of_cost():
    assert most_urgent(5.0, (5.0, 4000), (5.0, 94), (5.0, 600)) == (5.0, 94)


def test_short_requests_overtake_waiting_long_requests():
    """Eight clients that sent 4,096 letters each delayed sentences by five seconds."""
    long_requests = [(0.5 * number, 4128) for number in range(8)]
    assert most_urgent(4.0, (4.0, 94), *long_requests) == (4.0, 94)


def test_long_requests_wait_in_proportion_to_their_cost():
    """Short requests arrive continuously, and wait a tenth of a second each."""
    waited = next(now for now in range(100) if most_urgent(now, (0.0, 4128), (now - 0.1, 94)) == (0.0, 4128))
    assert 4 < waited < 12


def test_the_forecast_starts_after_some_batches():
    pace = Pace(batch_cost=8000)
    assert pace.seconds({0: 1000, 3: 1000}) == 0
    pace.measure(0, 800, 5.0)
    assert pace.seconds({0: 1000}) < 0.1
    for _ in range(100):
        pace.measure(0, 800, 4.0)
        pace.measure(3, 4000, 40.0)
    assert pace.seconds({0: 1000}) == pytest.approx(5.0, rel=0.01)
    assert pace.seconds({0: 1000, 3: 100}) == pytest.approx(6.0, rel=0.01)


def test_the_forecast_adapts_to_new_measurements():
    pace = Pace(batch_cost=100)
    for seconds in (10.0, 1.0):
        for _ in range(60):
            pace.measure(1, 100, seconds)
    assert pace.seconds({1: 100}) == pytest.approx(1.0, rel=0.1)

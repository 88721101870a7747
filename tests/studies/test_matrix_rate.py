"""The rate of matrix products, with a fake and a real clock."""

import json

import pytest

from t2t_keras.studies import matrix_rate as matrix_rates
from t2t_keras.studies.matrix_rate import matrix_rate, stored_rate, update_stored_rate


@pytest.fixture(autouse=True)
def no_time_for_more(monkeypatch):
    monkeypatch.setattr(matrix_rates, "_SECONDS", 0.0)


def test_the_rate_is_that_of_the_fastest_sufficiently_long_product():
    sizes = []

    def multiply(size):
        sizes.append(size)
        return size**3 * 1e-11 * (1 if len(sizes) == 5 else 2)

    assert matrix_rate(multiply) == {"flops_per_second": pytest.approx(2e11), "matrix_rows": 1024}
    assert sizes == [512, 1024, *[1024] * 5]


def test_the_highest_measured_rate_of_a_machine_is_kept(tmp_path):
    calls, taken = [], [1.0]

    def multiply(size):
        calls.append(size)
        return taken[0]

    assert stored_rate(tmp_path, "2 x Core(TM)") is None
    rate = update_stored_rate(tmp_path, "2 x Core(TM)", multiply)
    assert (
        rate
        == stored_rate(tmp_path, "2 x Core(TM)")
        == update_stored_rate(tmp_path, "2 x Core(TM)", multiply)
        == 2 * 512**3
    )
    assert len(calls) == 12
    taken[0] = 2.0
    assert update_stored_rate(tmp_path, "2 x Core(TM)", multiply) == rate == stored_rate(tmp_path, "2 x Core(TM)")
    taken[0] = 0.5
    rate = update_stored_rate(tmp_path, "2 x Core(TM)", multiply)
    assert rate == stored_rate(tmp_path, "2 x Core(TM)") == 4 * 512**3
    path = tmp_path / "machines" / "2_x_core_tm.json"
    assert json.loads(path.read_text(encoding="utf-8"))["machine"] == "2 x Core(TM)"
    path.write_text("{", encoding="utf-8")
    assert update_stored_rate(tmp_path, "2 x Core(TM)", multiply) == rate
    assert stored_rate(tmp_path, "another") is None

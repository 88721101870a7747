"""How fast products of matrices are, by a clock of the test's own and by the real one."""

import json

import pytest

from t2t_keras.studies.matrix_rate import matrix_rate, multiply_with_numpy, note_rate, noted_rate, processor


def test_the_rate_is_of_the_best_product_that_takes_long_enough():
    sizes = []

    def multiply(size):
        sizes.append(size)
        return size**3 * 1e-11 * (1 if len(sizes) == 5 else 2)

    assert matrix_rate(multiply) == {"flops_per_second": pytest.approx(2e11), "matrix_rows": 2048}
    assert sizes == [512, 1024, 2048, *[2048] * 5]


def test_a_product_takes_time():
    assert 0 < multiply_with_numpy(64) < 10


def test_a_rate_is_measured_once_a_machine(tmp_path):
    calls = []

    def multiply(size):
        calls.append(size)
        return 1.0

    assert noted_rate(tmp_path, "2 x Core(TM)") is None
    rate = note_rate(tmp_path, "2 x Core(TM)", multiply)
    assert rate == noted_rate(tmp_path, "2 x Core(TM)") == note_rate(tmp_path, "2 x Core(TM)", multiply) == 2 * 512**3
    assert len(calls) == 6
    path = tmp_path / "machines" / "2_x_core_tm.json"
    assert json.loads(path.read_text(encoding="utf-8"))["machine"] == "2 x Core(TM)"
    path.write_text("{", encoding="utf-8")
    assert note_rate(tmp_path, "2 x Core(TM)", multiply) == rate and len(calls) == 12
    note_rate(tmp_path, "another", multiply)
    assert len(calls) == 18


def test_the_processor_is_named():
    cores, _, name = processor().partition(" x ")
    assert int(cores) > 0 and name

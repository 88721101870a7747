"""Table 1: what is counted and found of each type of layers, and how exponents are fitted."""

import dataclasses

import numpy as np
import pytest

from t2t_keras.machine.processes import call_apart
from t2t_keras.studies import layer_costs, table1
from t2t_keras.studies.data_facts import DataFacts
from t2t_keras.studies.states import State
from t2t_keras.studies.study import Study
from t2t_keras.studies.study_settings import StudySettings
from t2t_keras.studies.table1 import LayerCostJob

TYPES = [row[0] for row in table1.ROWS]
SMALL = {"d_model": 8, "batch": 1, "lengths": (8, 16, 32), "fitted": 3, "neighbours": 4, "path_tokens": 12}


def small(layer_type: str, **changes) -> LayerCostJob:
    return LayerCostJob(name=layer_type, layer_type=layer_type, **{**SMALL, **changes})


def test_an_exponent_is_that_of_a_power():
    assert layer_costs.exponent([16, 32, 64], [3 * n**1.7 for n in (16, 32, 64)]) == pytest.approx(1.7)


def test_memory_that_a_process_takes_once_has_no_part_in_the_exponent():
    lengths = [512, 1024, 2048, 4096]
    peaks = [90 * 2**20 + 3 * n**1.9 for n in lengths]
    assert layer_costs.memory_exponent(lengths, peaks) == pytest.approx(1.9)
    assert layer_costs.exponent(lengths, peaks) < 1.6


def test_the_memory_of_a_process_is_its_own():
    """Not that of a large process that begins it."""
    held = np.ones(3 << 27, np.float32)  # 1.5 GiB
    assert 0 < call_apart(layer_costs._peak_bytes) < held.nbytes


# The ends are 11 positions apart. Two of four neighbours are on either side; dilations of 1, 3 and 9 read 3, 9 and 27.
@pytest.mark.parametrize(
    ("layer_type", "sequential", "layers"),
    [("self_attention", 1, 1), ("recurrent", 12, 1), ("convolutional", 1, 3), ("restricted", 1, 6)],
)
def test_operations_that_wait_and_layers_between_the_ends(layer_type, sequential, layers):
    assert layer_costs.sequential_operations(small(layer_type)) == sequential
    assert layer_costs.layers_between_ends(small(layer_type)) == layers


@pytest.mark.quick("convolutional")
@pytest.mark.parametrize("layer_type", TYPES)
def test_a_measurement_has_every_number_of_the_table(layer_type, tmp_path):
    job = small(layer_type)
    results = layer_costs.measure(job, tmp_path)
    assert all(results[f"seconds_{length}"] > 0 and results[f"bytes_{length}"] >= 0 for length in job.lengths)
    small_table = dataclasses.replace(table1.make_table(StudySettings("1"), DataFacts()), jobs=(job,))
    keys = {column.key for column in small_table.columns if not isinstance(column, str)}
    keys -= {"seconds_4096", "bytes_4096"}
    assert {key.replace("_16", "_8") for key in keys} <= {key.replace("_16", "_8") for key in results}


def test_the_table_needs_no_data_and_draws_its_curves(tmp_path):
    study = Study(tmp_path, StudySettings("1"))
    made_up = {"seconds_16": 0.1, "seconds_4096": 9.0, "bytes_16": 0, "bytes_4096": 2**30, "time_exponent": 1.96}
    states = {job.name: State("finished", "finished", made_up) for job in study.table.jobs}
    paths = study.table.write(states, tmp_path)
    assert [path.name for path in paths] == ["table1.md", "table1.csv", "table1.svg"]
    assert "| self_attention | Self-Attention " in paths[0].read_text(encoding="utf-8")
    assert "9,000.00" in paths[0].read_text(encoding="utf-8")
    picture = paths[2].read_text(encoding="utf-8")
    assert all(text in picture for text in ("length n", "Self-Attention", "Recurrent"))
    performed = study.perform([], report=print)
    assert not any(performed)

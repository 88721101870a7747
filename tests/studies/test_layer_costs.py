"""Table 1: counts and measurements of each type of layer, and fitted exponents."""

import dataclasses

import pytest

from t2t_keras.studies import layer_costs, table1
from t2t_keras.studies.data_facts import DataFacts
from t2t_keras.studies.study_settings import StudySettings
from t2t_keras.studies.table1 import LayerCostJob

TYPES = [row[0] for row in table1.ROWS]
SMALL = {"d_model": 8, "batch": 1, "lengths": (8, 16, 32), "fitted": 3, "neighbours": 4, "path_tokens": 12}


def small(layer_type: str, **changes) -> LayerCostJob:
    return LayerCostJob(name=layer_type, layer_type=layer_type, **{**SMALL, **changes})


def test_the_fitted_exponent_of_a_power():
    assert layer_costs.exponent([16, 32, 64], [3 * n**1.7 for n in (16, 32, 64)]) == pytest.approx(1.7)


# The ends are 11 positions apart. A window of four neighbours has two on either side; dilations of 1, 3 and 9 read 3, 9
# and 27 positions.
@pytest.mark.parametrize(
    ("layer_type", "sequential", "layers"),
    [("self_attention", 1, 1), ("recurrent", 12, 1), ("convolutional", 1, 3), ("restricted", 1, 6)],
)
def test_sequential_operations_and_layers_between_the_ends(layer_type, sequential, layers):
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

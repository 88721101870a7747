"""The requirements of a TPU on the training step, tested with XLA on the CPU."""

import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.errors import InputError
from tests.training.compiled_buckets import CASES, batches, dataset, dynamic_parts, whole_step
from tests.training.trajectories import make_step

HERE = pathlib.Path(__file__).parent


@pytest.fixture
def as_if_a_tpu(monkeypatch) -> tf.distribute.Strategy:
    """A strategy that is taken for a TPU's."""
    strategy = tf.distribute.get_strategy()
    monkeypatch.setattr(tf.distribute, "TPUStrategy", type(strategy))
    return strategy


def run_case(name: str) -> tuple[dict, str]:
    """Returns the results of compiled_buckets.py and the log of XLA."""
    logging = {"TF_CPP_MIN_LOG_LEVEL": "0", "TF_CPP_VMODULE": "device_compiler=1"}
    done = subprocess.run(
        [sys.executable, HERE / "compiled_buckets.py", name],
        capture_output=True,
        text=True,
        env={**os.environ, **logging, "PYTHONPATH": str(HERE.parents[1])},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_bucket_is_compiled_once_and_trains_as_without_xla(name):
    actual, log = run_case(name)
    assert actual["steps"] > actual["buckets"] > 5
    assert len(re.findall(r"Compilation of XLA executable time: .*#called: \d+", log)) == actual["buckets"]
    # Sums have a different order; over an epoch of updates, the effect is larger in bfloat16.
    tolerance = 2e-2 if "bfloat16" in name else 1e-4
    np.testing.assert_allclose(actual["compiled"], actual["plain"], rtol=tolerance)
    assert actual["tokens"] == actual["corpus_tokens"]  # Rows without a pair have no weight, and no pair is dropped.
    assert not actual["dynamic"]
    if name.startswith("whole"):
        assert actual["hlo"] > 1000 * actual["buckets"]


def test_the_whole_step_has_no_shape_that_depends_on_the_data():
    """Tests the last bucket, whose batch has rows without a pair; the slow test covers all."""
    batch = list(batches())[-1]
    assert dynamic_parts("f32[<=8,4] x, f32[4] dynamic-reshape, f32[2] dynamic-slice") == ["[<=8,4]", "dynamic-reshape"]
    hlo = whole_step({}).experimental_get_compiler_ir(batch)(stage="hlo")
    rows, length = batch["source"].shape
    assert f"s32[{rows},{length}]" in hlo
    assert not dynamic_parts(hlo)


def test_a_tpu_wants_static_shapes(as_if_a_tpu):
    with pytest.raises(InputError, match="train.static_shapes=true"):
        make_step({}, {}, as_if_a_tpu)


def test_on_a_tpu_nothing_skips_padding_and_the_step_is_compiled_as_a_whole(as_if_a_tpu):
    """No operation in the graph has a shape that depends on the data, and no function inside is compiled."""
    training = make_step({"static_shapes": True, "jit_compile": True}, {}, as_if_a_tpu)
    ids = tf.TensorSpec([4, 8], tf.int32)
    arguments = {"source": ids, "target": ids}, tf.TensorSpec([], tf.int64)
    graph = tf.function(training._replica_step).get_concrete_function(*arguments).graph
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(node for function in definition.library.function for node in function.node_def)]
    assert not {node.op for node in nodes} & {"Where", "Unique", "BooleanMask"}
    assert not any(function.attr["_XlaMustCompile"].b for function in definition.library.function)
    strings = [node.name for node in nodes for value in node.attr.values() if value.type == tf.string.as_datatype_enum]
    assert not strings


def test_on_a_tpu_validation_skips_no_padding_either(as_if_a_tpu):
    training = make_step({"static_shapes": True}, {}, as_if_a_tpu)
    batches = iter(dataset().repeat())
    definition = training._validate.get_concrete_function(batches, tf.constant(1)).graph.as_graph_def()
    nodes = [*definition.node, *(node for function in definition.library.function for node in function.node_def)]
    assert "Softmax" in {node.op for node in nodes}
    assert not {node.op for node in nodes} & {"Where", "Unique", "BooleanMask"}

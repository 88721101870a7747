"""The benchmark of experts: what it compares, and a table of it."""

import pathlib
import re
import subprocess
import sys

import pytest

from benchmarks.experts import layer_flops, model_config

pytestmark = pytest.mark.integration

ROOT = pathlib.Path(__file__).parents[2]


def test_what_is_compared_computes_the_same():
    """But for the gates, whatever the number of experts; the settings count each layer as the benchmark does."""
    plain, few, many = (model_config("tiny", count, 2, 64) for count in (0, 4, 64))
    gates = [12 * plain.d_model * count for count in (4, 64)]
    assert [layer_flops(config) - layer_flops(plain) for config in (few, many)] == gates
    totals = [config.training_flops(9)["matrices"] for config in (plain, few)]
    assert totals[1] - totals[0] == 8 * gates[0]
    with pytest.raises(SystemExit, match="--preset=gnmt is not a Transformer"):
        model_config("gnmt", 4, 2, 64)


@pytest.mark.slow
def test_tables_of_times_beside_operations():
    command = [sys.executable, "-m", "benchmarks.experts", "--num_experts=2,4", "--experts_per_token=1,2"]
    command += ["--d_expert=16", "--tokens=96", "--steps=1", "--rounds=1"]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in ("feed-forward", "1 of 2", "1 of 4", "2 of 2"):
        assert re.search(rf"^\| {name} \| [\d.]+ \| [\d.]+ \| \d\.\d\d \| ", output, re.MULTILINE), output

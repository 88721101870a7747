"""The benchmark of experts: what it compares, and a table of it."""

import pytest

from benchmarks.experts import layer_flops, model_config

pytestmark = pytest.mark.integration


def test_what_is_compared_computes_the_same():
    """But for the gates, whatever the number of experts; the settings count each layer as the benchmark does."""
    plain, few, many = (model_config("tiny", count, 2, 64) for count in (0, 4, 64))
    gates = [12 * plain.d_model * count for count in (4, 64)]
    assert [layer_flops(config) - layer_flops(plain) for config in (few, many)] == gates
    totals = [config.training_flops(9)["matrices"] for config in (plain, few)]
    assert totals[1] - totals[0] == 8 * gates[0]
    with pytest.raises(SystemExit, match="--preset=gnmt is not a Transformer"):
        model_config("gnmt", 4, 2, 64)

import pytest

from benchmarks.experts import layer_flops, model_config

pytestmark = pytest.mark.integration


def test_experts_add_only_the_operations_of_their_gates():
    """Independent of the number of experts; the configuration and the benchmark count the same operations."""
    dense, few, many = (model_config("tiny", count, 2, 64) for count in (0, 4, 64))
    gates = [12 * dense.d_model * count for count in (4, 64)]
    assert [layer_flops(config) - layer_flops(dense) for config in (few, many)] == gates
    totals = [config.training_flops(9)["matrices"] for config in (dense, few)]
    assert totals[1] - totals[0] == 8 * gates[0]
    with pytest.raises(SystemExit, match="--preset=gnmt is not a Transformer"):
        model_config("gnmt", 4, 2, 64)

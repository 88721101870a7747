"""Shards weights over the devices of a replica (tensor parallelism); this module does not import TensorFlow.

Of two consecutive matrices, the first is split by columns and the second by rows. Each device then computes its own
attention heads or inner units from start to end, and one sum over the devices of the replica completes the layer
(Shoeybi et al., "Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism", 2019). The
moments and the moving average of a weight are sharded like the weight.
"""

import fnmatch
import logging
import math

from jax.sharding import NamedSharding, PartitionSpec

from t2t_keras.errors import InputError
from t2t_keras.models.contract import SequenceModel
from t2t_keras.models.weights import weight_names
from t2t_keras.training.on_jax.jax_devices import MODEL, JaxDevices

_EMBEDDINGS = {"*embedding/table": 0, "*embedding/bias": 0}  # by vocabulary entries
# The axis along which the weights with these names are split.
_AXES = {
    **_EMBEDDINGS,
    **{f"*attention/{name}_kernel": 1 for name in ("query", "key", "value")},  # by heads
    **{f"*attention/{name}_bias": 0 for name in ("query", "key", "value")},
    "*attention/score_vector": 0,
    "*attention/output_kernel": 0,
    "*feed_forward/inner_kernel": 1,  # by d_ff
    "*feed_forward/inner_bias": 0,
    "*feed_forward/outer_kernel": 0,
    "*feed_forward/inner_kernels": 2,  # by d_expert, in every expert
    "*feed_forward/inner_biases": 1,
    "*feed_forward/outer_kernels": 1,
}


def weight_layout(model: SequenceModel, devices: JaxDevices) -> list[NamedSharding]:
    """Returns the sharding of each weight of a built model; weights that are not split are replicated.

    If the number of devices per replica does not divide the entries of an embedding, the embedding is replicated and a
    warning is logged.

    Raises:
        InputError: the number of devices does not divide the heads or an inner width, or more than half of the
            parameters would not be split.
    """
    count = devices.model_parallel
    if (heads := getattr(model.config, "num_heads", 0)) % count:
        raise InputError(f"--model_parallel={count} does not divide model.num_heads={heads}")
    layout: list[NamedSharding] = []
    split = total = 0
    for name, variable in zip(weight_names(model), model.trainable_variables, strict=True):
        shape = tuple(variable.shape)
        axis = None if count == 1 else _axis(name, shape, count)
        place = PartitionSpec() if axis is None else PartitionSpec(*[None] * axis, MODEL)
        layout.append(NamedSharding(devices.mesh, place))
        total += math.prod(shape)
        split += 0 if axis is None else math.prod(shape)
    if count > 1 and 2 * split < total:
        raise InputError(
            f"--model_parallel={count} would split only {split / total:.0%} of the weights: it splits embeddings with "
            "a divisible number of entries, multi-head attention and feed-forward networks"
        )
    return layout


def _axis(name: str, shape: tuple[int, ...], count: int) -> int | None:
    """Returns the axis along which a weight is split into `count` parts, or None if it is replicated."""
    pattern = next((pattern for pattern in _AXES if fnmatch.fnmatchcase(name, pattern)), None)
    if pattern is None:
        return None
    axis = _AXES[pattern]
    if shape[axis] % count == 0:
        return axis
    problem = f"does not divide {shape[axis]:,}, the size of axis {axis} of {name} {list(shape)}"
    if pattern not in _EMBEDDINGS:
        raise InputError(f"--model_parallel={count} {problem}")
    logging.getLogger(__name__).warning("--model_parallel=%d %s; every device holds the whole weight", count, problem)
    return None

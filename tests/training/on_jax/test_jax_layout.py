"""Weights are split as in Megatron-LM; weights that cannot be split stay whole or are an error."""

import logging
import math

import pytest

from t2t_keras.errors import InputError
from t2t_keras.models.transformer import Transformer
from t2t_keras.models.weights import weight_names
from tests.training.tiny_families import TINY, tiny_family

jax = pytest.importorskip("jax")

from t2t_keras.models.families import make_model  # noqa: E402
from t2t_keras.training.on_jax.jax_devices import BATCH, MODEL  # noqa: E402
from t2t_keras.training.on_jax.jax_layout import weight_layout  # noqa: E402


class Mesh:
    """The properties of devices that a layout needs."""

    def __init__(self, model_parallel: int) -> None:
        self.model_parallel = model_parallel
        self.mesh = jax.sharding.AbstractMesh((2, model_parallel), (BATCH, MODEL))


def parts(count: int, **settings) -> dict[str, tuple[int, ...]]:
    """Returns the shape of a device's part of each weight of a Transformer, by name."""
    model = make_model(tiny_family("transformer", **{"vocab_size": 52, "num_heads": 4, **settings}))
    assert isinstance(model, Transformer)
    layout = weight_layout(model, Mesh(count))  # type: ignore[arg-type]
    shapes = [tuple(variable.shape) for variable in model.trainable_variables]
    split = [place.shard_shape(shape) for place, shape in zip(layout, shapes, strict=True)]
    assert {math.prod(shape) // math.prod(part) for shape, part in zip(shapes, split, strict=True)} == {1, count}
    return dict(zip(weight_names(model), split, strict=True))


def test_a_pair_of_matrices_is_split_by_columns_and_rows():
    """d_model is 8, d_ff is 16, and heads are 4 x 2."""
    actual = parts(4, tie_embeddings=False, use_output_bias=True)
    for side in ("source", "target", "output"):
        assert actual[f"{side}_embedding/table"] == (13, 8)
    assert actual["output_embedding/bias"] == (13,)
    for attention in ("encoder/layer_0/self_attention", "decoder/layer_1/cross_attention"):
        for name in ("query", "key", "value"):
            assert actual[f"{attention}/{name}_kernel"] == (8, 2)
            assert actual[f"{attention}/{name}_bias"] == (2,)
        assert actual[f"{attention}/output_kernel"] == (2, 8)
        assert actual[f"{attention}/output_bias"] == (8,)
        assert actual[f"{attention}_residual/norm/scale"] == (8,)
    assert actual["decoder/layer_0/feed_forward/inner_kernel"] == (8, 4)
    assert actual["decoder/layer_0/feed_forward/inner_bias"] == (4,)
    assert actual["decoder/layer_0/feed_forward/outer_kernel"] == (4, 8)
    assert actual["decoder/layer_0/feed_forward/outer_bias"] == (8,)


def test_each_expert_is_split_and_scores_go_with_their_heads():
    actual = parts(2, num_experts=4, experts_per_token=2, d_expert=6, attention_score="additive")
    assert actual["encoder/layer_0/feed_forward/inner_kernels"] == (4, 8, 3)
    assert actual["encoder/layer_0/feed_forward/inner_biases"] == (4, 3)
    assert actual["encoder/layer_0/feed_forward/outer_kernels"] == (4, 3, 8)
    assert actual["encoder/layer_0/feed_forward/outer_biases"] == (4, 8)
    assert actual["encoder/layer_0/feed_forward/gate_kernel"] == (8, 4)
    assert actual["encoder/layer_0/self_attention/score_vector"] == (2, 2)


def test_a_vocabulary_that_does_not_divide_is_whole(caplog):
    with caplog.at_level(logging.WARNING):
        actual = parts(2, vocab_size=51)
    assert actual["target_embedding/table"] == (51, 8)
    (message,) = caplog.messages
    assert message == (
        "--model_parallel=2 does not divide 51, the size of axis 0 of target_embedding/table [51, 8]; "
        "every device holds the whole weight"
    )


def test_learned_positions_are_whole():
    assert parts(2, position_encoding="learned", max_positions=10)["source_positions/table"] == (10, 8)


@pytest.mark.parametrize(
    ("count", "settings", "message"),
    [
        (4, {"num_heads": 2}, "--model_parallel=4 does not divide model.num_heads=2"),
        (
            4,
            {"d_ff": 18},
            "--model_parallel=4 does not divide 18, the size of axis 1 of "
            "encoder/layer_0/feed_forward/inner_kernel [8, 18]",
        ),
        (
            2,
            {"vocab_size": 5001},
            "--model_parallel=2 would split only 6% of the weights: it splits embeddings with a divisible "
            "number of entries, multi-head attention and feed-forward networks",
        ),
    ],
)
def test_settings_that_cannot_be_split_are_rejected(count, settings, message):
    with pytest.raises(InputError) as refused:
        parts(count, **settings)
    assert str(refused.value) == message


@pytest.mark.parametrize("family", sorted(TINY.keys() - {"transformer"}))
def test_families_with_mostly_other_layers_are_rejected(family):
    with pytest.raises(InputError, match="--model_parallel=2 would split only"):
        weight_layout(make_model(TINY[family]), Mesh(2))


@pytest.mark.parametrize("family", TINY)
def test_without_a_number_nothing_is_split(family):
    model = make_model(TINY[family])
    assert all(place.is_fully_replicated for place in weight_layout(model, Mesh(1)))

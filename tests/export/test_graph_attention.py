"""The selection of a kind and a layer of attention for each line."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.export.graph_attention import AttentionSizes, parse_choice, select_attention
from t2t_keras.models.contract import Attentions


def test_each_line_has_the_attention_of_its_kind_and_layer(rng):
    encoder, cross = (rng.random(shape, "float32") for shape in ((3, 1, 2, 4, 4), (3, 2, 2, 3, 4)))
    attention = Attentions(*map(tf.constant, (encoder, np.zeros((3, 0, 2, 3, 3), "float32"), cross)))
    choices = parse_choice(
        tf.constant(["cross", "decoder", "encoder"]), tf.constant([1, 0, 0]), AttentionSizes.of(attention)
    )
    expected = np.zeros((3, 2, 4, 4))
    expected[0, :, :3], expected[2] = cross[0, 1], encoder[2, 0]
    np.testing.assert_allclose(select_attention(attention, choices), expected)


@pytest.mark.parametrize(
    ("kind", "layer", "message"),
    [("self", 0, "kind must be"), ("cross", 2, "cross has 2"), ("encoder", -1, "layer must"), ("decoder", 1, "layer")],
)
def test_other_kinds_and_layers_are_rejected(kind, layer, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        parse_choice(tf.constant([kind]), tf.constant([layer]), AttentionSizes((1, 0, 2), 2))

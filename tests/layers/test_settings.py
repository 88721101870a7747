import dataclasses
from typing import Any

import keras
import pytest

from t2t_keras import TransformerConfig
from t2t_keras.layers import Decoder, DecoderLayer, Encoder, EncoderLayer, LayerSettings

FIELDS: dict[str, Any] = {
    "num_heads": 2,
    "d_key": 4,
    "d_ff": 16,
    "d_value": 6,
    "dropout_rate": 0.1,
    "attention_dropout_rate": 0.2,
    "relu_dropout_rate": 0.3,
    "norm_position": "pre",
    "use_attention_bias": False,
    "layer_norm_epsilon": 1e-5,
    "attention_gain": 0.5,
}
SETTINGS = LayerSettings(**FIELDS)


@pytest.mark.parametrize(
    "layer",
    [EncoderLayer(SETTINGS), DecoderLayer(**FIELDS), Encoder(2, TransformerConfig(**FIELDS)), Decoder(2, **FIELDS)],
    ids=repr,
)
def test_every_layer_accepts_and_stores_all_settings(layer):
    stored = keras.layers.deserialize(keras.layers.serialize(layer))
    assert stored.settings == SETTINGS
    for part in getattr(layer, "layers", [layer]):
        attentions = [part.self_attention] + ([part.cross_attention] if hasattr(part, "cross_attention") else [])
        for attention in attentions:
            attention.build((None, None, 8), (None, None, 8))
            actual = attention.num_heads, attention.head_widths, attention.dropout_rate, attention.use_bias
            assert actual == (2, (4, 6), 0.2, False)
            assert attention.gain == 0.5
        assert (part.feed_forward.d_ff, part.feed_forward.dropout_rate) == (16, 0.3)
        residual = part.feed_forward_residual
        assert (residual.norm_position, residual.dropout_rate, residual.epsilon) == ("pre", 0.1, 1e-5)


def test_arguments_replace_fields_of_settings():
    assert EncoderLayer(SETTINGS, d_ff=32).settings == dataclasses.replace(SETTINGS, d_ff=32)
    with pytest.raises(
        ValueError, match="`settings` must be a LayerSettings, got {'d_ff': 32}; pass fields as keyword"
    ):
        EncoderLayer({"d_ff": 32})
    with pytest.raises(ValueError, match="d_inner"):
        EncoderLayer(SETTINGS, d_inner=16)


def test_widths_of_heads_follow_from_the_width_of_the_model():
    layer = EncoderLayer(num_heads=3)
    layer.build((None, None, 12))
    assert layer.self_attention.head_widths == (4, 4)
    with pytest.raises(ValueError, match="`num_heads`=3 does not divide d_model=8; give `d_key` and `d_value`"):
        EncoderLayer(num_heads=3).build((None, None, 8))

"""What the layers of a stack have in common."""

import dataclasses

import keras
import pytest

from t2t_keras.layers import Decoder, DecoderLayer, Encoder, EncoderLayer, LayerSettings

SETTINGS = LayerSettings(
    num_heads=2,
    d_key=4,
    d_ff=16,
    d_value=6,
    dropout_rate=0.1,
    attention_dropout_rate=0.2,
    relu_dropout_rate=0.3,
    norm_position="pre",
    use_attention_bias=False,
    layer_norm_epsilon=1e-5,
)


def test_fields_by_name_are_settings():
    assert LayerSettings.of(dataclasses.asdict(SETTINGS)) == SETTINGS
    assert LayerSettings.of(SETTINGS) is SETTINGS
    with pytest.raises(TypeError, match="d_inner"):
        LayerSettings.of({"num_heads": 2, "d_key": 4, "d_inner": 16})


@pytest.mark.parametrize(
    "layer", [EncoderLayer(SETTINGS), DecoderLayer(SETTINGS), Encoder(2, SETTINGS), Decoder(2, SETTINGS)], ids=repr
)
def test_every_layer_takes_and_stores_all_of_them(layer):
    stored = keras.layers.deserialize(keras.layers.serialize(layer))
    assert (stored.layer if isinstance(stored, Encoder | Decoder) else stored.settings) == SETTINGS
    for part in getattr(layer, "layers", [layer]):
        attentions = [part.self_attention] + ([part.cross_attention] if hasattr(part, "cross_attention") else [])
        for attention in attentions:
            found = (
                attention.num_heads,
                attention.d_key,
                attention.d_value,
                attention.dropout_rate,
                attention.use_bias,
            )
            assert found == (2, 4, 6, 0.2, False)
        assert (part.feed_forward.d_ff, part.feed_forward.dropout_rate) == (16, 0.3)
        residual = part.feed_forward_residual
        assert (residual.norm_position, residual.dropout_rate, residual.epsilon) == ("pre", 0.1, 1e-5)

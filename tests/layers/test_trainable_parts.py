"""Frozen layers and models stay frozen when they are saved, loaded, cloned and copied."""

import copy
import json
import pickle
import warnings
from typing import Any

import keras
import numpy as np
import pytest

from t2t_keras import Transformer, TransformerConfig, layers
from t2t_keras.losses import SmoothedCrossEntropy

SIZES: dict[str, Any] = {"num_heads": 2, "d_ff": 12}
INPUTS = {"source": np.array([[3, 4, 1], [5, 1, 0]]), "target": np.array([[6, 7, 1], [8, 1, 0]])}


def frozen_by_argument() -> keras.layers.Layer:
    return layers.Encoder(2, **SIZES, trainable=False)


def frozen_later() -> keras.layers.Layer:
    encoder = layers.Encoder(2, **SIZES)
    encoder.trainable = False
    return encoder


def frozen_in_part() -> keras.layers.Layer:
    encoder = layers.Encoder(2, **SIZES)
    encoder.layers[0].trainable = False
    encoder.layers[1].self_attention.trainable = False
    return encoder


def unfrozen_in_part() -> keras.layers.Layer:
    encoder = layers.Encoder(2, **SIZES, trainable=False)
    encoder.layers[1].feed_forward.trainable = True
    return encoder


def trainable_flags(layer: keras.layers.Layer) -> list[bool]:
    return [weight.trainable for weight in layer.weights]


def pickle_and_unpickle(layer: keras.layers.Layer) -> keras.layers.Layer:
    return pickle.loads(pickle.dumps(layer))


@pytest.mark.parametrize("make", [frozen_by_argument, frozen_later, frozen_in_part, unfrozen_in_part])
def test_frozen_layers_of_a_functional_model_stay_frozen(make, tmp_path):
    inputs = keras.Input((None, 8))
    encoder = make()
    model = keras.Model(inputs, keras.layers.Dense(1)(encoder(inputs)))
    expected, count = trainable_flags(model), sum(trainable_flags(encoder))
    assert count == {frozen_in_part: 8, unfrozen_in_part: 4}.get(make, 0)
    json.loads(model.to_json())
    model.save(tmp_path / "model.keras")
    assert trainable_flags(keras.models.load_model(tmp_path / "model.keras")) == expected
    assert trainable_flags(keras.models.clone_model(model)) == expected
    for copied in (copy.deepcopy(encoder), pickle_and_unpickle(encoder)):
        assert trainable_flags(copied) == trainable_flags(encoder)
    rebuilt = layers.Encoder.from_config(encoder.get_config())
    rebuilt.build((None, None, 8))
    assert trainable_flags(rebuilt) == trainable_flags(encoder)


def test_layers_can_be_unfrozen():
    encoder = frozen_by_argument()
    encoder.trainable = True
    encoder.build((None, None, 8))
    assert all(trainable_flags(encoder))
    assert "trainable_parts" not in encoder.get_config()


@pytest.mark.parametrize(
    ("layer", "shapes"),
    [
        (layers.MultiHeadAttention(2, trainable=False), [(None, None, 8)] * 2),
        (
            layers.DecoderLayer(**SIZES, num_experts=4, norm_position="pre", trainable=False),
            [(None, None, 8)] * 2,
        ),
        (layers.Decoder(1, **SIZES, trainable=False), [(None, None, 8)] * 2),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_trainable_argument_affects_every_weight(layer, shapes):
    layer.build(*shapes)
    assert layer.weights and not any(trainable_flags(layer))


def test_layers_of_a_subclass_are_frozen():
    class Extended(layers.EncoderLayer):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self._gates = keras.layers.Dense(3)
            self.more = {"first": keras.layers.Dense(3)}

        def build(self, input_shape):
            super().build(input_shape)
            self._gates.build(input_shape)
            self.more["first"].build(input_shape)

    layer = Extended(**SIZES)
    layer.more["first"].trainable = layer._gates.trainable = False
    copied = Extended.from_config(layer.get_config())
    assert not copied.more["first"].trainable and not copied._gates.trainable
    layer.trainable = False
    copied = Extended.from_config(layer.get_config())
    copied.build((None, None, 8))
    assert not any(trainable_flags(copied))


def test_a_frozen_part_stays_frozen_and_the_optimizer_keeps_its_state(tmp_path):
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 2, "d_model": 16, "d_ff": 24, "num_heads": 2}
    model = Transformer(TransformerConfig(vocab_size=13, **sizes))
    model.encoder.trainable = model.decoder.layers[1].feed_forward.trainable = False
    model.compile("adam", SmoothedCrossEntropy(0.1), run_eagerly=True)
    model.fit(INPUTS, INPUTS["target"], verbose=0)
    expected = trainable_flags(model)
    assert 0 < sum(expected) < len(expected)
    model.save(tmp_path / "model.keras")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # Keras's warning for an optimizer with other variables
        loaded = keras.models.load_model(tmp_path / "model.keras")
    assert trainable_flags(loaded) == expected
    for variable, expected_variable in zip(loaded.optimizer.variables, model.optimizer.variables, strict=True):
        np.testing.assert_array_equal(variable, expected_variable)
    cloned = keras.models.clone_model(model)
    cloned.build()
    assert trainable_flags(cloned) == expected

"""The contract of every layer: registration, masks, seeds, subclasses and stateless calls."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from keras import ops

from t2t_keras import layers
from t2t_keras.baselines.bytenet.dilated_block import DilatedBlock
from t2t_keras.baselines.convolution import Convolution
from t2t_keras.baselines.recurrent.recurrent import LSTM

LAYER = {"num_heads": 2, "d_key": 3, "d_ff": 12, "d_value": 5, "dropout_rate": 0.1, "layer_norm_epsilon": 1e-5}
T2T = {**LAYER, "norm_position": "pre", "use_attention_bias": False, "attention_dropout_rate": 0.2}
T2T |= {"relu_dropout_rate": 0.3, "attention_score": "additive", "attention_window": 2, "activation": "gelu"}


@dataclasses.dataclass(eq=False)
class Case:
    """A layer and its use in a functional model.

    Attributes:
        make: the class of the layer.
        config: the arguments of the class.
        shapes: the shapes of the inputs without the batch.
        output: the shape of the result for a batch of 2.
        mask: the name of the mask argument, if the call has one.
        integers: whether the inputs are token ids.
    """

    make: Callable[..., keras.layers.Layer]
    config: dict[str, Any]
    shapes: list[tuple]
    output: tuple
    mask: str | None = None
    integers: bool = False


X, MEMORY = (4, 8), (3, 8)
CASES = {
    "attention": Case(
        layers.MultiHeadAttention,
        {"num_heads": 2, "d_key": 3, "d_value": 5, "dropout_rate": 0.1, "use_bias": False},
        [X, MEMORY],
        (2, *X),
        "attention_mask",
    ),
    "convolution": Case(
        Convolution,
        {"filters": 5, "kernel_size": 3, "dilation_rate": 2, "causal": True, "weight_normalization": True},
        [X],
        (2, 4, 5),
    ),
    "attention_in_a_window": Case(
        layers.MultiHeadAttention,
        {"num_heads": 2, "d_key": 3, "score": "additive", "window": (2, 1)},
        [X, X],
        (2, *X),
        "attention_mask",
    ),
    "decoder": Case(layers.Decoder, {"num_layers": 2, **T2T}, [X, MEMORY], (2, *X), "cross_attention_mask"),
    "decoder_layer": Case(layers.DecoderLayer, LAYER, [X, MEMORY], (2, *X), "cross_attention_mask"),
    "decoder_layer_pre": Case(layers.DecoderLayer, T2T, [X, MEMORY], (2, *X), "cross_attention_mask"),
    "dilated_block": Case(
        DilatedBlock,
        {"d_inner": 5, "kernel_size": 3, "dilation_rate": 2, "causal": True, "dropout_rate": 0.1, "epsilon": 1e-5},
        [X],
        (2, *X),
    ),
    "dropout": Case(layers.Dropout, {"rate": 0.3}, [X], (2, *X)),
    "embedding": Case(layers.TiedEmbedding, {"vocab_size": 9, "d_model": 8}, [(4,)], (2, 4, 8), integers=True),
    "encoder": Case(layers.Encoder, {"num_layers": 2, **T2T}, [X], (2, *X), "self_attention_mask"),
    "encoder_layer": Case(layers.EncoderLayer, LAYER, [X], (2, *X), "self_attention_mask"),
    "experts": Case(
        layers.MixtureOfExperts,
        {"num_experts": 5, "experts_per_token": 2, "d_expert": 7, "gate_noise": False, "balance_weight": 0.1},
        [X],
        (2, *X),
    ),
    "feed_forward": Case(layers.FeedForward, {"d_ff": 12, "dropout_rate": 0.1}, [X], (2, *X)),
    "learned_positions": Case(layers.LearnedPositions, {"max_positions": 6}, [X], (2, *X)),
    "lstm": Case(LSTM, {"units": 5, "reverse": True}, [X], (2, 4, 5)),
    "lstm_projected": Case(LSTM, {"units": 7, "projection": 3}, [X], (2, 4, 3)),
    "normalization": Case(layers.LayerNormalization, {"epsilon": 1e-4}, [X], (2, *X)),
    "sinusoidal_positions": Case(layers.SinusoidalPositions, {"layout": "halves"}, [X], (2, *X)),
}
every_layer = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@functools.cache
def shared_layer(case: Case) -> keras.layers.Layer:
    """Returns one layer for all tests that do not modify it."""
    return case.make(**case.config)


def example(case: Case, rng) -> list[np.ndarray]:
    if case.integers:
        return [rng.integers(1, 9, (2, *shape)).astype("int32") for shape in case.shapes]
    return [rng.standard_normal((2, *shape)).astype("float32") for shape in case.shapes]


def functional_model(case: Case, layer: keras.layers.Layer) -> keras.Model:
    """Returns a model with unknown length and batch size; it computes the mask from a separate input."""
    inputs = [keras.Input((None, *shape[1:]), dtype="int32" if case.integers else "float32") for shape in case.shapes]
    if case.mask is None:
        return keras.Model(inputs, layer(*inputs))
    tokens = keras.Input((None,), dtype="int32")
    outputs = layer(*inputs, **{case.mask: layers.padding_mask(tokens)})
    return keras.Model([*inputs, tokens], outputs)


def test_every_public_layer_is_covered():
    public = {getattr(layers, name) for name in layers.__all__}
    classes = {item for item in public if isinstance(item, type) and issubclass(item, keras.layers.Layer)}
    assert classes | {Convolution, DilatedBlock, LSTM} == {case.make for case in CASES.values()}


@every_layer
def test_the_layer_is_registered_for_saving(case):
    assert keras.saving.get_registered_name(case.make) == f"t2t_keras>{case.make.__name__}"
    stored = keras.saving.serialize_keras_object(case.make(**case.config))
    for module in (stored["module"], "t2t_keras.a_former_home"):
        copy = keras.saving.deserialize_keras_object({**stored, "module": module})
        assert type(copy) is case.make


@every_layer
def test_the_mask_hides_positions(case, rng):
    if case.mask is None:
        assert not {"self_attention_mask", "attention_mask"} & set(case.make.call.__code__.co_varnames)
        return
    layer, inputs = shared_layer(case), example(case, rng)
    length = inputs[-1].shape[1]
    visible = np.arange(length) < length - 1
    outputs = np.array(layer(*inputs, **{case.mask: visible}))
    assert np.abs(outputs - np.array(layer(*inputs))).max() > 1e-4
    changed = [x.copy() for x in inputs]
    changed[-1][:, -1] += 1.0
    rows = slice(None) if len(inputs) > 1 else slice(0, length - 1)
    np.testing.assert_allclose(np.array(layer(*changed, **{case.mask: visible}))[:, rows], outputs[:, rows], atol=1e-5)


@every_layer
def test_the_layer_runs_in_training_with_and_without_a_seed(case, rng):
    layer, inputs = shared_layer(case), example(case, rng)
    assert np.all(np.isfinite(layer(*inputs, training=True)))
    if "seed" in case.make.call.__code__.co_varnames:
        seed = ops.convert_to_tensor([1, 2], "int32")
        once = layer(*inputs, seed=seed, training=True)
        np.testing.assert_array_equal(once, layer(*inputs, seed=seed, training=True))


@every_layer
def test_a_stateless_call_passes_on_the_training_flag(case, rng):
    layer, inputs = case.make(**case.config), example(case, rng)
    expected = layer(*inputs)
    state = [[variable.value for variable in variables] for variables in _variables(layer)]
    outputs, _ = layer.stateless_call(*state, *inputs)
    np.testing.assert_allclose(outputs, expected, atol=1e-6)
    outputs, after = layer.stateless_call(*state, *inputs, training=True)
    seeds = [value for value, before in zip(after, state[1], strict=True) if np.any(value != before)]
    assert bool(seeds) == bool(np.abs(outputs - expected).max() > 1e-6)


def _variables(layer: keras.layers.Layer) -> tuple[list, list]:
    return layer.trainable_variables, layer.non_trainable_variables


def test_a_subclass_stores_the_arguments_of_its_base():
    class Scaled(layers.FeedForward):
        def __init__(self, d_ff, gain=1.0, **settings):
            super().__init__(d_ff, **settings)
            self.gain = gain

    restored = Scaled.from_config(Scaled(8, gain=2.0, activation="gelu", dropout_rate=0.3, name="mine").get_config())
    assert (restored.d_ff, restored.gain, restored.activation, restored.dropout_rate, restored.name) == (
        8,
        2.0,
        "gelu",
        0.3,
        "mine",
    )


def test_a_subclass_can_have_its_own_arguments():
    class WithDropout(layers.EncoderLayer):
        def __init__(self, rate=0.1, **kwargs):
            super().__init__(**kwargs)
            self.extra = keras.layers.Dropout(rate)

        def get_config(self):
            return {**super().get_config(), "rate": self.extra.rate}

    class Starred(layers.FeedForward):
        def __init__(self, *sizes, dtype=None, **kwargs):
            super().__init__(*sizes, dtype=dtype, **kwargs)

    assert WithDropout.from_config(WithDropout(0.3, **LAYER).get_config()).extra.rate == 0.3
    copy = Starred.from_config(Starred(8, dtype="mixed_bfloat16").get_config())
    assert (copy.d_ff, copy.compute_dtype) == (8, "bfloat16")


def test_a_mask_with_an_invalid_shape_is_rejected(rng):
    layer, x = layers.EncoderLayer(**LAYER), rng.standard_normal((3, 4, 8)).astype("float32")
    for shape in ((3, 4), (3, 1, 1, 5), (3, 4, 1, 1, 1)):
        with pytest.raises(
            ValueError, match=r"broadcastable to .* \(3, 2, 4, 4\), got the shape .* `padding_mask` computes"
        ):
            layer(x, np.ones(shape, bool))


def test_keras_masks_are_passed_on(rng):
    token_ids = np.array([[5, 6, 0, 0], [7, 0, 0, 0]])
    x = keras.layers.Embedding(9, 8, mask_zero=True)(token_ids)
    for layer in (layers.SinusoidalPositions(), layers.EncoderLayer(**LAYER), layers.FeedForward(4)):
        x = layer(x)
    np.testing.assert_allclose(keras.layers.GlobalAveragePooling1D()(x)[1], x[1, 0], rtol=1e-6)

"""Small models and training examples for the tests of Keras's interface on every backend."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from t2t_keras import layers
from t2t_keras.config import TransformerConfig
from t2t_keras.losses import SmoothedCrossEntropy
from t2t_keras.models.transformer import Transformer

POLICIES = ("float16", "bfloat16", "mixed_float16", "mixed_bfloat16")
VOCAB = 13
SIZES: dict[str, Any] = {
    **{"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 16, "d_ff": 24, "num_heads": 2},
    "dropout_rate": 0.0,
}


def array(x: Any) -> np.ndarray:
    """Returns the values of a tensor of any backend, floats as float32."""
    x = ops.convert_to_tensor(x)
    is_float = "float" in keras.backend.standardize_dtype(x.dtype)
    return ops.convert_to_numpy(ops.cast(x, "float32") if is_float else x)


def dtype_of(x: Any) -> str:
    """Returns the name of a tensor's dtype on any backend."""
    return keras.backend.standardize_dtype(x.dtype)


def assert_equal(actual: Sequence[Any], expected: Sequence[Any], atol: float = 0.0) -> None:
    """Asserts that two lists of variables or arrays are equal."""
    for actual_array, expected_array in zip(actual, expected, strict=True):
        np.testing.assert_allclose(array(actual_array), array(expected_array), rtol=0, atol=atol)


def token_ids(count: int, length: int = 6) -> np.ndarray:
    """Returns sentences of 2 to `length` tokens, padded with 0: int32 [count, length]."""
    rng = np.random.default_rng(5)
    ids = rng.integers(2, VOCAB, (count, length)).astype("int32")
    return np.where(np.arange(length) < rng.integers(2, length + 1, (count, 1)), ids, 0)


def transformer(**compiled: Any) -> Transformer:
    """Returns a compiled Transformer, always with the same initial weights."""
    keras.utils.set_random_seed(3)
    model = Transformer(TransformerConfig(vocab_size=VOCAB, **SIZES))
    model.build()
    model.compile(keras.optimizers.Adam(3e-3), SmoothedCrossEntropy(0.1), **{"jit_compile": False, **compiled})
    return model


def classifier(**compiled: Any) -> keras.Model:
    """Returns a compiled functional model with two classes for texts of any length, always with the same initial
    weights.
    """
    keras.utils.set_random_seed(3)
    tokens = keras.Input((None,), dtype="int32", name="tokens")
    x = layers.SinusoidalPositions()(layers.TiedEmbedding(VOCAB, 16)(tokens))
    x = layers.EncoderLayer(num_heads=2, d_ff=24, dropout_rate=0.0)(x, layers.padding_mask(tokens))
    x = keras.layers.GlobalAveragePooling1D()(x, mask=ops.not_equal(tokens, 0))
    model = keras.Model({"tokens": tokens}, keras.layers.Dense(2)(x))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(3e-3), loss, **{"jit_compile": False, **compiled})
    return model

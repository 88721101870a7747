"""Trains custom models of these layers on the backend that KERAS_BACKEND names.

The models are a classifier and a small encoder-decoder, both functional Keras models that use only the layers, and the
`Transformer` with plain `fit`. Run as a program, it prints one JSON object. The tests run it once for each installed
backend.
"""

import json
import os
import zlib
from typing import Any

import keras
import numpy as np
from keras import ops

from t2t_keras import layers
from t2t_keras.config import TransformerConfig
from t2t_keras.layers.attention import scores, window
from t2t_keras.losses import SmoothedCrossEntropy
from t2t_keras.models.families import make_model
from t2t_keras.models.transformer import Transformer
from t2t_keras.schedules import PaperSchedule
from tests.layers.collected import call_with_weights
from tests.training.tiny_families import TINY, tiny_family

VOCAB = 12
SIZES: dict[str, Any] = {"num_heads": 2, "d_key": 8, "d_ff": 32, "dropout_rate": 0.1}


def sentences(count: int, length: int = 6) -> np.ndarray:
    """Returns sentences of 2 to length - 1 random tokens (ids from 3), the end symbol and padding."""
    rng = np.random.default_rng(1)
    lengths = rng.integers(2, length, count)
    tokens = np.where(np.arange(length) < lengths[:, None], rng.integers(3, VOCAB, (count, length)), 0)
    tokens[np.arange(count), lengths] = 1
    return tokens.astype("int32")


def classifier() -> keras.Model:
    """Detects the word 3 in a sentence. The model uses all sites of dropout, post-norm and experts."""
    tokens = keras.Input((None,), dtype="int32")
    x = layers.SinusoidalPositions()(layers.TiedEmbedding(VOCAB, 16)(tokens))
    x = layers.Dropout(0.1)(x)
    mask = layers.padding_mask(tokens)
    experts: dict[str, Any] = {"num_experts": 4, "experts_per_token": 2}
    x = layers.EncoderLayer(**SIZES, **experts, attention_dropout_rate=0.1, relu_dropout_rate=0.1)(x, mask)
    x = keras.layers.GlobalMaxPooling1D()(x)
    return keras.Model(tokens, keras.layers.Dense(1)(x))


def copier() -> keras.Model:
    """Copies each token from the source and the earlier tokens, with a decoder stack and pre-norm."""
    source, shifted = (keras.Input((6,), dtype="int32") for _ in range(2))
    embedding = layers.TiedEmbedding(VOCAB, 16)
    positions = layers.LearnedPositions(6)
    mask = layers.padding_mask(source)
    layer: dict[str, Any] = {**SIZES, "norm_position": "pre", "use_attention_bias": False}
    memory = layers.Encoder(1, **layer)(positions(embedding(source)), mask)
    x = layers.Decoder(1, **layer)(positions(embedding(shifted)), memory, layers.causal_mask(6), mask)
    return keras.Model([source, shifted], keras.layers.Dense(VOCAB)(x))


def train_classifier(tokens: np.ndarray) -> dict[str, float]:
    model = classifier()
    labels = (tokens == 3).any(1).astype("float32")
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(3e-3), loss, metrics=[keras.metrics.BinaryAccuracy(threshold=0.0)])
    history = model.fit(tokens, labels, batch_size=64, epochs=8, verbose=0).history
    return {"loss": history["loss"], "accuracy": history["binary_accuracy"][-1]}


def train_copier(tokens: np.ndarray) -> dict[str, float]:
    model = copier()
    shifted = np.pad(tokens, ((0, 0), (1, 0)))[:, :-1]
    model.compile(keras.optimizers.Adam(3e-3), SmoothedCrossEntropy(0.1))
    return {"loss": model.fit([tokens, shifted], tokens, batch_size=64, epochs=4, verbose=0).history["loss"]}


def train_transformer(tokens: np.ndarray, **changes) -> dict[str, float]:
    """Trains, and compares decoding with the cache, and collecting attention, with the call."""
    sizes: dict[str, Any] = {
        "num_encoder_layers": 1,
        "num_decoder_layers": 1,
        "d_model": 16,
        "d_ff": 32,
        "num_heads": 2,
    }
    rates: dict[str, Any] = {"attention_dropout_rate": 0.1, "relu_dropout_rate": 0.1}
    model = Transformer(TransformerConfig(vocab_size=VOCAB, **sizes, **rates, **changes))
    model.compile(keras.optimizers.Adam(PaperSchedule(16, 50), 0.9, 0.98, 1e-9), SmoothedCrossEntropy(0.1))
    inputs = {"source": tokens, "target": tokens}
    losses = model.fit(inputs, tokens, batch_size=64, epochs=4, verbose=0).history["loss"]
    examples = {name: ops.convert_to_tensor(value[:3]) for name, value in inputs.items()}
    expected = ops.convert_to_numpy(model(examples))
    search = model.start_search(examples["source"], model.encode(examples["source"]), 1)
    cache, error, previous = search.cache, 0.0, np.zeros(3, "int32")
    for position in range(6):
        logits, cache = search.step(ops.convert_to_tensor(previous), cache)
        error = max(error, float(np.abs(ops.convert_to_numpy(logits) - expected[:, position]).max()))
        previous = tokens[:3, position]
    logits, attention = model.logits_and_attention(examples)
    attention_error = np.abs(ops.convert_to_numpy(logits) - expected).max()
    for weights in map(ops.convert_to_numpy, attention):
        attention_error = max(attention_error, np.abs(weights.sum(-1) - 1.0).max())
    return {"loss": losses, "cache_error": error, "attention_error": float(attention_error)}


def train_other_attention(tokens: np.ndarray) -> dict[str, float]:
    """Trains additive attention within a window, in blocks of two positions and of few scores, and compares the blocks
    with a single one.
    """
    window.BLOCK, scores._MAX_HIDDEN = 2, 4000
    attention = layers.MultiHeadAttention(2, 4, score="additive", window=(2, 1))
    x = ops.convert_to_tensor(np.random.default_rng(1).standard_normal((3, 7, 8)), "float32")
    error = ops.max(ops.abs(attention(x, x) - call_with_weights(attention, x, x)[0]))
    results = train_transformer(tokens, attention_score="additive", attention_window=2)
    return {**results, "block_error": float(ops.convert_to_numpy(error))}


def train_families(tokens: np.ndarray) -> dict[str, list[float]]:
    """Returns the losses of six updates of each family from equal weights, without operations that backends draw
    differently.

    On TensorFlow it runs eagerly, because tracing takes longer than these updates.
    """
    rng = np.random.default_rng(2)
    losses: dict[str, list[float]] = {}
    for family in TINY:
        model: keras.Model = make_model(tiny_family(family, vocab_size=VOCAB, dropout_rate=0.0, tie_embeddings=False))
        for weight in model.trainable_variables:  # A seed per weight, since their order depends on the backend.
            seed = zlib.crc32(weight.path.partition("/")[2].encode())
            values = np.random.default_rng(seed).standard_normal(weight.shape).astype("float32")
            weight.assign(ops.convert_to_numpy(weight) * 0 + 0.2 * values)
        adam = keras.optimizers.Adam(PaperSchedule(16, 50), 0.9, 0.98, 1e-6)
        model.compile(adam, SmoothedCrossEntropy(0.1), run_eagerly=keras.backend.backend() == "tensorflow")
        losses[family] = []
        for _ in range(6):
            rows = tokens[rng.integers(0, len(tokens), 16)]
            losses[family].append(float(model.train_on_batch({"source": rows, "target": rows}, rows)))
            model.reset_metrics()
    return losses


def dropout_statistics() -> dict[str, float]:
    """Compares the masks of one seed, drawn twice, and of a different seed."""
    layer, x = layers.Dropout(0.3), ops.ones((400, 500))
    masks = [
        ops.convert_to_numpy(layer(x, seed=ops.convert_to_tensor(seed, "int32"), training=True))
        for seed in ([5, -6], [5, -6], [6, -6])
    ]
    is_kept = [mask != 0 for mask in masks]
    return {
        "zeros": float(1 - is_kept[0].mean()),
        "mean": float(masks[0].mean()),
        "agreement_of_equal_seeds": float(np.mean(is_kept[0] == is_kept[1])),
        "agreement_of_other_seeds": float(np.mean(is_kept[0] == is_kept[2])),
    }


def main() -> None:
    keras.utils.set_random_seed(3)
    tokens = sentences(1024)
    results = {
        "backend": keras.backend.backend(),
        "classifier": train_classifier(tokens),
        "copier": train_copier(tokens),
        "transformer": train_transformer(tokens),
        "other_attention": train_other_attention(tokens),
        "families": train_families(tokens),
        "dropout": dropout_statistics(),
    }
    print(json.dumps(results))


if __name__ == "__main__":
    assert os.environ["KERAS_BACKEND"] == keras.backend.backend()
    main()

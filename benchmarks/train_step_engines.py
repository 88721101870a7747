"""The engines of `train_step.py`: one training step each on the same batches, in a process of its own.

python -m benchmarks.train_step_engines ENGINE BATCHES.npz SIZES.json
"""

import importlib
import json
import os
import sys
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np

from benchmarks.turns import serve

SMOOTHING = 0.1
ADAM = {"beta_1": 0.9, "beta_2": 0.98, "epsilon": 1e-9}


def read_batches(path: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Source and target ids, int32 [rows, length], padded with 0."""
    arrays = np.load(path)
    return [(arrays[f"source_{i}"], arrays[f"target_{i}"]) for i in range(len(arrays.files) // 2)]


def shifted(target: np.ndarray) -> np.ndarray:
    """Decoder inputs for targets."""
    return np.pad(target, ((0, 0), (1, 0)))[:, :-1]


def ours(batches: list, sizes: dict, dtype_policy: str = "float32") -> tuple:
    """t2t_keras: its trainer's step."""
    import tensorflow as tf

    from t2t_keras.config import TrainConfig
    from t2t_keras.config.model_config import model_config_class
    from t2t_keras.models.families import make_model
    from t2t_keras.training.devices.strategy import distributed, make_strategy
    from t2t_keras.training.step import TrainingStep

    strategy = make_strategy("cpu")
    fields = {**sizes}
    family = model_config_class(fields.pop("family"))
    if "num_layers" in fields:
        fields["num_encoder_layers"] = fields["num_decoder_layers"] = fields.pop("num_layers")
    model: Any = make_model(family(**fields), dtype_policy)
    step = TrainingStep(model, TrainConfig(label_smoothing=SMOOTHING), strategy)

    def elements():
        while True:
            yield from ({"source": source, "target": target} for source, target in batches)

    ids = tf.TensorSpec([None, None], tf.int32)
    options = tf.data.Options()
    options.autotune.enabled = False
    dataset = tf.data.Dataset.from_generator(elements, output_signature={"source": ids, "target": ids})
    iterator = distributed(strategy, dataset.prefetch(2).with_options(options))

    def work() -> dict:
        return {"loss": float(step.run(iterator, len(batches)).loss[-1])}

    return work, model.count_params()


def ours_bfloat16(batches: list, sizes: dict) -> tuple:
    """The same with `train.mixed_bfloat16`."""
    return ours(batches, sizes, "mixed_bfloat16")


def _keras_fit(model, batches: list) -> tuple:
    """`compile` and `fit` of a Keras model that takes (source, shifted target) and gives logits."""
    import keras
    import tensorflow as tf

    def loss(target, logits):
        real = tf.cast(target != 0, tf.float32)
        gold = tf.gather(logits, tf.cast(target, tf.int32), axis=-1, batch_dims=2)
        smoothed = (1 - SMOOTHING) * gold + SMOOTHING * tf.reduce_mean(logits, -1)
        return tf.reduce_sum((tf.reduce_logsumexp(logits, -1) - smoothed) * real) / tf.reduce_sum(real)

    ids = tf.TensorSpec([None, None], tf.int32)
    options = tf.data.Options()
    options.autotune.enabled = False

    def elements():
        yield from (((source, shifted(target)), target) for source, target in batches)

    dataset = tf.data.Dataset.from_generator(elements, output_signature=((ids, ids), ids)).prefetch(2)
    dataset = dataset.with_options(options)
    model.compile(keras.optimizers.Adam(1e-4, **ADAM), loss, jit_compile=False)

    def work() -> dict:
        return {"loss": model.fit(dataset, verbose=0).history["loss"][-1]}

    return work, lambda: model.count_params()


def _positions(length: int, d_model: int) -> np.ndarray:
    angles = np.arange(length)[:, None] / 1e4 ** (np.arange(0, d_model, 2)[None] / d_model)
    return np.stack([np.sin(angles), np.cos(angles)], -1).reshape(length, d_model).astype(np.float32)


def keras_layers(batches: list, sizes: dict) -> tuple:
    """The same network in keras.layers, trained with fit."""
    if sizes["family"] != "transformer":
        network = importlib.import_module(f"benchmarks.{sizes['family']}_in_keras").Network(sizes)
        return _keras_fit(network, batches)
    return _keras_fit(_transformer_in_keras(sizes), batches)


def _transformer_in_keras(sizes: dict):
    """Its projection is tied to the embedding."""
    import keras
    from keras import layers, ops

    d_model, rate = sizes["d_model"], sizes["dropout_rate"]
    signal = ops.convert_to_tensor(_positions(1024, d_model))

    class Block(layers.Layer):
        def __init__(self, cross: bool) -> None:
            super().__init__()
            d_key = d_model // sizes["num_heads"]
            self.attentions = [layers.MultiHeadAttention(sizes["num_heads"], d_key) for _ in range(1 + cross)]
            self.feed_forward = keras.Sequential([layers.Dense(sizes["d_ff"], "relu"), layers.Dense(d_model)])
            self.norms = [layers.LayerNormalization(epsilon=1e-6) for _ in range(2 + cross)]
            self.dropouts = [layers.Dropout(rate) for _ in range(2 + cross)]

        def call(self, x, memory=None, memory_mask=None, causal=False):
            self_mask = None if memory is not None else memory_mask
            attended = self.attentions[0](x, x, attention_mask=self_mask, use_causal_mask=causal)
            x = self.norms[0](x + self.dropouts[0](attended))
            if memory is not None:
                attended = self.attentions[1](x, memory, attention_mask=memory_mask)
                x = self.norms[1](x + self.dropouts[1](attended))
            return self.norms[-1](x + self.dropouts[-1](self.feed_forward(x)))

    class Network(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            scale = keras.initializers.RandomNormal(stddev=d_model**-0.5)
            self.embedding = layers.Embedding(sizes["vocab_size"], d_model, scale)
            self.dropouts = [layers.Dropout(rate), layers.Dropout(rate)]
            self.encoder = [Block(False) for _ in range(sizes["num_layers"])]
            self.decoder = [Block(True) for _ in range(sizes["num_layers"])]

        def embed(self, ids, dropout):
            return dropout(self.embedding(ids) * d_model**0.5 + signal[: ops.shape(ids)[1]])

        def call(self, inputs):
            source, target = inputs
            mask = ops.not_equal(source, 0)[:, None, :]
            x = self.embed(source, self.dropouts[0])
            for block in self.encoder:
                x = block(x, memory_mask=mask)
            y = self.embed(target, self.dropouts[1])
            for block in self.decoder:
                y = block(y, x, mask, causal=True)
            return ops.matmul(y, ops.transpose(self.embedding.embeddings))

    return Network()


def keras_hub(batches: list, sizes: dict) -> tuple:
    """The same network in keras_hub's layers, trained with fit; their attention drops probabilities too."""
    import keras
    from keras import ops
    from keras_hub import layers as hub

    d_model, rate = sizes["d_model"], sizes["dropout_rate"]
    signal = ops.convert_to_tensor(_positions(1024, d_model))
    block = {"intermediate_dim": sizes["d_ff"], "num_heads": sizes["num_heads"], "dropout": rate}

    class Network(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            scale = keras.initializers.RandomNormal(stddev=d_model**-0.5)
            self.embedding = hub.ReversibleEmbedding(sizes["vocab_size"], d_model, embeddings_initializer=scale)
            self.dropouts = [keras.layers.Dropout(rate), keras.layers.Dropout(rate)]
            self.encoder = [hub.TransformerEncoder(**block) for _ in range(sizes["num_layers"])]
            self.decoder = [hub.TransformerDecoder(**block) for _ in range(sizes["num_layers"])]

        def embed(self, ids, dropout):
            return dropout(self.embedding(ids) * d_model**0.5 + signal[: ops.shape(ids)[1]])

        def call(self, inputs):
            source, target = inputs
            real = ops.not_equal(source, 0)
            x = self.embed(source, self.dropouts[0])
            for layer in self.encoder:
                x = layer(x, padding_mask=real)
            y = self.embed(target, self.dropouts[1])
            for layer in self.decoder:
                y = layer(y, x, encoder_padding_mask=real)
            return self.embedding(y, reverse=True)

    return _keras_fit(Network(), batches)


def marian(batches: list, sizes: dict) -> tuple:
    """Hugging Face's Marian on PyTorch with torch.optim.Adam."""
    import torch
    from transformers import MarianConfig, MarianMTModel

    from t2t_keras.machine.processor import num_cores

    torch.set_num_threads(num_cores())
    config = MarianConfig(
        vocab_size=sizes["vocab_size"],
        d_model=sizes["d_model"],
        encoder_layers=sizes["num_layers"],
        decoder_layers=sizes["num_layers"],
        encoder_ffn_dim=sizes["d_ff"],
        decoder_ffn_dim=sizes["d_ff"],
        encoder_attention_heads=sizes["num_heads"],
        decoder_attention_heads=sizes["num_heads"],
        dropout=sizes["dropout_rate"],
        attention_dropout=0.0,
        activation_dropout=0.0,
        activation_function="relu",
        scale_embedding=True,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
        decoder_start_token_id=0,
        forced_eos_token_id=None,
        max_position_embeddings=1024,
    )
    model = MarianMTModel(config).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)
    tensors = [tuple(torch.from_numpy(x).long() for x in (s, shifted(t), t)) for s, t in batches]

    def work() -> dict:
        for source, inputs, target in tensors:
            optimizer.zero_grad(set_to_none=True)
            mask = (source != 0).long()
            # Else each layer would copy its keys and values, as for a search.
            logits = model(input_ids=source, attention_mask=mask, decoder_input_ids=inputs, use_cache=False).logits
            loss = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), target.flatten(), ignore_index=0, label_smoothing=SMOOTHING
            )
            loss.backward()
            optimizer.step()
        return {"loss": loss.item()}

    return work, sum(p.numel() for p in model.parameters())


def products(batches: list, sizes: dict) -> tuple:
    """The matrix products of a step and nothing else: what a step would cost if all the rest were free."""
    import tensorflow as tf

    d, ff, heads, vocab = (sizes[key] for key in ("d_model", "d_ff", "num_heads", "vocab_size"))
    layers = sizes["num_layers"]
    width = d // heads
    kernels = {pair: tf.random.normal(pair) for pair in ((d, d), (d, ff), (ff, d), (d, vocab))}

    def linear(rows: int, pair: tuple[int, int], count: int) -> None:
        x, g, kernel = tf.random.normal([rows, pair[0]]), tf.random.normal([rows, pair[1]]), kernels[pair]
        for _ in range(count):
            calls.append((tf.matmul, (x, kernel), {}))
            calls.append((tf.matmul, (g, kernel), {"transpose_b": True}))
            calls.append((tf.matmul, (x, g), {"transpose_a": True}))

    def attention(rows: int, queries: int, keys: int, count: int) -> None:
        q, k = tf.random.normal([rows, heads, queries, width]), tf.random.normal([rows, heads, keys, width])
        p = tf.random.normal([rows, heads, queries, keys])
        for _ in range(2 * count):
            calls.append((tf.matmul, (q, k), {"transpose_b": True}))
            calls.append((tf.matmul, (p, k), {}))
            calls.append((tf.matmul, (p, q), {"transpose_a": True}))

    all_calls = []
    for source, target in batches:
        calls: list = []
        rows = source.shape[0]
        linear(source.size, (d, d), 6 * layers)
        linear(target.size, (d, d), 6 * layers)
        for size in (source.size, target.size):
            linear(size, (d, ff), layers)
            linear(size, (ff, d), layers)
        linear(int((target != 0).sum()), (d, vocab), 1)
        attention(rows, source.shape[1], source.shape[1], layers)
        attention(rows, target.shape[1], target.shape[1], layers)
        attention(rows, target.shape[1], source.shape[1], layers)
        all_calls.append(calls)

    def work() -> dict:
        for batch_calls in all_calls:
            for product, arguments, options in batch_calls:
                result = product(*arguments, **options)
        return {"last": float(result[..., 0, 0].numpy().ravel()[0])}

    return work, 0


ENGINES = {engine.__name__: engine for engine in (ours, ours_bfloat16, keras_layers, keras_hub, marian, products)}


def main() -> None:
    """Runs one engine until its input ends."""
    engine, batches_path, sizes_path = sys.argv[1:]
    batches = read_batches(batches_path)
    with open(sizes_path) as file:
        sizes = json.load(file)
    work, parameters = ENGINES[engine](batches, sizes)
    work()
    serve(work, {"parameters": parameters() if callable(parameters) else parameters})


if __name__ == "__main__":
    main()

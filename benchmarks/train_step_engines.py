"""The engines of `train_step.py`, each of which trains on the same batches in a separate process.

python -m benchmarks.train_step_engines ENGINE BATCHES.npz SIZES.json
"""

import importlib
import itertools
import json
import os
import sys
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np

from benchmarks.turns import serve

SMOOTHING = 0.1
ADAM = {"beta_1": 0.9, "beta_2": 0.98, "epsilon": 1e-9}


def read_batches(path: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns source and target ids, int32 [rows, length], padded with 0."""
    arrays = np.load(path)
    return [(arrays[f"source_{i}"], arrays[f"target_{i}"]) for i in range(len(arrays.files) // 2)]


def shifted(target: np.ndarray) -> np.ndarray:
    """Returns the decoder inputs for targets."""
    return np.pad(target, ((0, 0), (1, 0)))[:, :-1]


def ours(batches: list, sizes: dict, dtype_policy: str = "float32", **settings: Any) -> tuple:
    """The training step of t2t_keras; `settings` are fields of `TrainConfig`."""
    from t2t_keras.config import TrainConfig
    from t2t_keras.config.model_config import model_config_class
    from t2t_keras.data.pipeline import dataset_of
    from t2t_keras.models.families import make_model
    from t2t_keras.training.devices.strategy import distributed, make_strategy
    from t2t_keras.training.step import TrainingStep

    strategy = make_strategy("cpu")
    fields = {**sizes}
    family = model_config_class(fields.pop("family"))
    if "num_layers" in fields:
        fields["num_encoder_layers"] = fields["num_decoder_layers"] = fields.pop("num_layers")
    model: Any = make_model(family(**fields), dtype_policy)
    step = TrainingStep(model, TrainConfig(label_smoothing=SMOOTHING, **settings), strategy)

    elements = itertools.cycle({"source": source, "target": target} for source, target in batches)
    iterator = distributed(strategy, dataset_of(elements).prefetch(2))

    def work() -> dict:
        return {"loss": float(step.run(iterator, len(batches)).loss[-1])}

    return work, model.count_params()


def ours_bfloat16(batches: list, sizes: dict) -> tuple:
    """Like `ours`, with `train.mixed_bfloat16`."""
    return ours(batches, sizes, "mixed_bfloat16")


def ours_simcut(batches: list, sizes: dict) -> tuple:
    """Like `ours`, with a second prediction of each target, for which some tokens are hidden."""
    return ours(batches, sizes, consistency="simcut")


def ours_rdrop(batches: list, sizes: dict) -> tuple:
    """Like `ours`, with a second prediction of each target."""
    return ours(batches, sizes, consistency="rdrop")


def _keras_fit(model, batches: list, *, mapped: bool) -> tuple:
    """Trains a Keras model from (source, shifted target) to logits with `compile` and `fit`.

    Keras users feed such batches with a generator, whose kernel slows down TensorFlow's memory allocation on Python
    3.11 and later (see `t2t_keras.data.pipeline.dataset_of`). With `mapped`, the dataset does not use this kernel.
    """
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

    elements = [((source, shifted(target)), target) for source, target in batches]
    if mapped:

        def element(index):
            arrays = tf.numpy_function(lambda i: (*elements[i][0], elements[i][1]), [index], [tf.int32] * 3)
            source, inputs, target = (tf.ensure_shape(array, [None, None]) for array in arrays)
            return (source, inputs), target

        dataset = tf.data.Dataset.range(len(elements)).map(element)
    else:
        dataset = tf.data.Dataset.from_generator(lambda: elements, output_signature=((ids, ids), ids))
    dataset = dataset.prefetch(2).with_options(options)
    model.compile(keras.optimizers.Adam(1e-4, **ADAM), loss, jit_compile=False)

    def work() -> dict:
        return {"loss": model.fit(dataset, verbose=0).history["loss"][-1]}

    return work, lambda: model.count_params()


def _positions(length: int, d_model: int) -> np.ndarray:
    angles = np.arange(length)[:, None] / 1e4 ** (np.arange(0, d_model, 2)[None] / d_model)
    return np.stack([np.sin(angles), np.cos(angles)], -1).reshape(length, d_model).astype(np.float32)


def keras_layers(batches: list, sizes: dict, *, mapped: bool = False) -> tuple:
    """The same network in keras.layers, trained with fit."""
    if sizes["family"] != "transformer":
        network = importlib.import_module(f"benchmarks.{sizes['family']}_in_keras").Network(sizes)
    else:
        network = _transformer_in_keras(sizes)
    return _keras_fit(network, batches, mapped=mapped)


def keras_layers_mapped(batches: list, sizes: dict) -> tuple:
    """The same without `from_generator`."""
    return keras_layers(batches, sizes, mapped=True)


def _transformer_in_keras(sizes: dict):
    """Returns a Transformer in keras.layers whose projection is tied to the embedding."""
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


def keras_hub(batches: list, sizes: dict, *, mapped: bool = False) -> tuple:
    """The same network in keras_hub's layers, trained with fit; it also has attention dropout."""
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

    return _keras_fit(Network(), batches, mapped=mapped)


def keras_hub_mapped(batches: list, sizes: dict) -> tuple:
    """The same without `from_generator`."""
    return keras_hub(batches, sizes, mapped=True)


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
            # Otherwise each layer would copy its keys and values, as for a search.
            logits = model(input_ids=source, attention_mask=mask, decoder_input_ids=inputs, use_cache=False).logits
            loss = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), target.flatten(), ignore_index=0, label_smoothing=SMOOTHING
            )
            loss.backward()
            optimizer.step()
        return {"loss": loss.item()}

    return work, sum(p.numel() for p in model.parameters())


def matrix(batches: list, sizes: dict) -> tuple:
    """A large float32 matrix product, whose rate is an upper bound, instead of a network."""
    import tensorflow as tf

    rows, count = 2048, 20
    factors = tf.random.normal([2, rows, rows])

    def work() -> dict:
        started = time.perf_counter()
        for _ in range(count):
            product = tf.matmul(factors[0], factors[1])
        last = float(product[0, 0].numpy())
        return {"last": last, "flops_per_second": 2 * rows**3 * count / (time.perf_counter() - started)}

    return work, 0


ENGINES = {
    engine.__name__: engine
    for engine in (
        *(ours, ours_bfloat16, ours_simcut, ours_rdrop),
        *(keras_layers, keras_layers_mapped, keras_hub, keras_hub_mapped),
        *(marian, matrix),
    )
}


def main() -> None:
    """Runs one engine as a worker."""
    engine, batches_path, sizes_path = sys.argv[1:]
    batches = read_batches(batches_path)
    with open(sizes_path) as file:
        sizes = json.load(file)
    work, parameters = ENGINES[engine](batches, sizes)
    work()
    serve(work, {"parameters": parameters() if callable(parameters) else parameters})


if __name__ == "__main__":
    main()

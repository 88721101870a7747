"""Measures the time that a window saves: in self-attention by length, and in a search step by position.

    python -m benchmarks.attention_window [--window=16] [--lengths=256,512,1024,2048,4096]

The first table has the forward and backward pass of a layer over one sequence: over all positions, within the window as
a mask over all positions, and within the window in blocks. The second table has one search step of a model with the
sizes of `tiny`. The methods take turns. All figures are medians.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf

from benchmarks.turns import number
from t2t_keras.layers import MultiHeadAttention
from t2t_keras.layers.collectors import AttentionWeights
from t2t_keras.machine.processor import processor
from t2t_keras.models.transformer import Transformer
from t2t_keras.search.hoisting import HoistedWeights
from t2t_keras.search.state import cache_invariants
from t2t_keras.studies.layer_costs import exponent
from t2t_keras.values import PositiveInt


def passes(attend: Callable, weights: Sequence[tf.Variable], d_model: int, jit_compile: bool) -> Callable:
    """Returns a compiled function that computes the gradient of self-attention for a sequence, [1, length, d_model]."""

    @tf.function(input_signature=[tf.TensorSpec([1, None, d_model])], jit_compile=jit_compile)
    def gradients(x: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs = attend(x, x)
        return tape.gradient(outputs, [x, *weights])

    return gradients


def _masked(layer: MultiHeadAttention) -> Callable:
    """Returns the layer's call with its window as a mask, which the layer uses while weights are collected."""

    def attend(query: tf.Tensor, memory: tf.Tensor) -> tf.Tensor:
        with AttentionWeights():
            return layer(query, memory)

    return attend


def seconds_of_layers(flags: argparse.Namespace, lengths: list[int]) -> dict[str, list[float]]:
    """Returns the median seconds of a forward and backward pass at each length, by method."""
    sizes = (flags.num_heads, flags.d_model // flags.num_heads)
    full = MultiHeadAttention(*sizes, name="full")
    windowed = MultiHeadAttention(*sizes, window=(flags.window, flags.window), name="windowed")
    functions = {}
    for name, layer, attend in (
        ("all positions", full, full),
        ("mask", windowed, _masked(windowed)),
        ("blocks", windowed, windowed),
    ):
        if not layer.built:
            layer.build((None, None, flags.d_model), (None, None, flags.d_model))
        functions[name] = passes(attend, layer.trainable_variables, flags.d_model, flags.jit_compile)
    medians: dict[str, list[float]] = {name: [] for name in functions}
    for length in lengths:
        x = tf.random.normal([1, length, flags.d_model])
        seconds: dict[str, list[float]] = {name: [] for name in functions}
        for turn in range(flags.turns + 1):
            for name, run in functions.items():
                started = time.perf_counter()
                run(x)[0].numpy()
                if turn:  # the first turn compiles
                    seconds[name].append(time.perf_counter() - started)
        for name, values in seconds.items():
            medians[name].append(statistics.median(values))
    return medians


def seconds_of_steps(flags: argparse.Namespace, positions: list[int]) -> list[list[float]]:
    """Returns the median seconds of a search step around each position, without and then with the window."""
    searches = []
    for window in (None, flags.window):
        model = Transformer.from_preset("tiny", vocab_size=1000, attention_window=window)
        source = tf.random.uniform([1, 32], 3, 1000, tf.int32)
        search = model.start_search(source, model.encode(source), flags.beam_size)
        shapes = cache_invariants(search.cache)
        specs = tf.nest.map_structure(lambda shape, x: tf.TensorSpec(shape, x.dtype), shapes, search.cache)
        step = tf.function(HoistedWeights().wrap(search.step), [tf.TensorSpec([None], tf.int32), specs])
        searches.append((search.cache, step, {position: list[float]() for position in positions}))
    token_ids, around = tf.fill([flags.beam_size], 5), 8
    for _ in range(flags.turns):
        for cache, step, seconds in searches:
            for position in range(max(positions) + around):
                started = time.perf_counter()
                logits, cache = step(token_ids, cache)
                logits.numpy()
                for near in positions:
                    if abs(position - near) < around:
                        seconds[near].append(time.perf_counter() - started)
    return [[statistics.median(values) for values in seconds.values()] for _, _, seconds in searches]


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--window", type=number(), default=16, help="positions on either side")
    parser.add_argument(
        "--lengths",
        type=number(tuple[PositiveInt, ...]),
        default=[256, 512, 1024, 2048, 4096],
        help="lengths of the sequences, separated by commas",
    )
    parser.add_argument(
        "--positions",
        type=number(tuple[PositiveInt, ...]),
        default=[64, 128, 256, 512, 1024],
        help="positions of the steps, separated by commas",
    )
    parser.add_argument("--d_model", type=number(), default=128)
    parser.add_argument("--num_heads", type=number(), default=4)
    parser.add_argument("--beam_size", type=number(), default=4)
    parser.add_argument("--turns", type=number(), default=9)
    parser.add_argument("--jit_compile", action="store_true", help="compile the layers with XLA")
    flags = parser.parse_args()
    gpus = len(tf.config.list_physical_devices("GPU"))
    print(f"TensorFlow {tf.__version__}, {processor()}, {gpus} GPUs")

    layers = seconds_of_layers(flags, flags.lengths)
    print(f"\nself-attention, d_model {flags.d_model}, {flags.num_heads} heads, window {flags.window}: milliseconds\n")
    print(f"| length | {' | '.join(layers)} | all positions / blocks | mask / blocks |\n|{'---|' * 6}")
    for length, *row in zip(flags.lengths, *layers.values(), strict=True):
        ratios = [f"{row[method] / row[2]:.2f}" for method in (0, 1)]
        print(f"| {length:,} | {' | '.join(f'{1e3 * value:,.2f}' for value in row)} | {' | '.join(ratios)} |")
    powers = " | ".join(f"{exponent(flags.lengths, values):.2f}" for values in layers.values())
    print(f"| exponent | {powers} | | |")

    steps = seconds_of_steps(flags, flags.positions)
    print(f"\na step of tiny with {flags.beam_size} hypotheses: milliseconds\n")
    print("| position | all positions | window | ratio |\n|---|---|---|---|")
    for position, full, windowed in zip(flags.positions, *steps, strict=True):
        print(f"| {position:,} | {1e3 * full:,.2f} | {1e3 * windowed:,.2f} | {full / windowed:.2f} |")


if __name__ == "__main__":
    main()

"""Measures the quantities of Table 1 for a layer type: time, memory, sequential operations and path length."""

import functools
import itertools
import pathlib
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from t2t_keras.baselines.convolution import Convolution
from t2t_keras.baselines.recurrent.recurrent import LSTM
from t2t_keras.layers import MultiHeadAttention
from t2t_keras.machine.peak_memory import peak_bytes
from t2t_keras.machine.processor import processor
from t2t_keras.studies.table1 import LayerCostJob

Layer = Callable[[tf.Tensor], tf.Tensor]

_MIN_SECONDS = 0.2  # minimum total time of the runs
_MIN_RUNS = 5  # minimum number of runs


def measure(job: LayerCostJob, study_dir: pathlib.Path) -> dict[str, Any]:
    """Measures one layer type. Call it in a separate process, because the peak memory of a process never falls.

    Returns:
        "seconds_N" for each length N: median time of a forward and backward pass.
        "bytes_N" for each length N: increase in the peak memory of the process since the start of the measurements.
        "time_exponent": exponent of the time, fitted to the longest lengths.
        "memory_exponent": exponent of the memory, fitted to the differences of "bytes_N" between the longest lengths.
        "sequential_operations", "path_length": counted at `job.path_tokens`.
        "machine": name of the processor.
    """
    keras.utils.set_random_seed(1)
    passes = _passes(make_layer(job, 0), job)
    passes(job.lengths[0])
    results: dict[str, Any] = {}
    initial_peak = peak_bytes()
    for length in job.lengths:  # in ascending order, because the peak memory of a process never falls
        results[f"seconds_{length}"] = _seconds(functools.partial(passes, length))
        results[f"bytes_{length}"] = peak_bytes() - initial_peak
    fit_lengths = job.lengths[-job.fitted :]
    results["time_exponent"] = exponent(fit_lengths, [results[f"seconds_{length}"] for length in fit_lengths])
    results["memory_exponent"] = memory_exponent(fit_lengths, [results[f"bytes_{length}"] for length in fit_lengths])
    sequential = sequential_operations(job)
    path_length = sequential * layers_between_ends(job)
    return {**results, "sequential_operations": sequential, "path_length": path_length, "machine": processor()}


def make_layer(job: LayerCostJob, number: int) -> Layer:
    """Returns layer `number` (from 0) of a stack; it maps float [batch, length, d_model] to the same shape."""
    if job.layer_type == "recurrent":
        return LSTM(job.d_model)
    if job.layer_type == "convolutional":  # each layer multiplies the receptive field by k
        return Convolution(job.d_model, job.kernel_size, dilation_rate=job.kernel_size**number, causal=True)
    window = (job.neighbours // 2, job.neighbours // 2) if job.layer_type == "restricted" else None
    attention = MultiHeadAttention(num_heads=1, d_key=job.d_model, window=window)
    return lambda x: attention(x, x)


def sequential_operations(job: LayerCostJob) -> int:
    """Counts a layer's sequential operations at `job.path_tokens`: the iterations of its loops, or 1 without a loop."""
    layer, inputs = make_layer(job, 0), tf.ones([1, job.path_tokens, job.d_model])
    layer(inputs)

    @tf.function
    def iterations(x: tf.Tensor) -> tf.Tensor:
        layer(x)
        operations = tf.compat.v1.get_default_graph().get_operations()
        while_loops = [operation for operation in operations if operation.type in ("While", "StatelessWhile")]
        return tf.add_n([operation.outputs[0] for operation in while_loops]) if while_loops else tf.constant(1)

    return int(iterations(inputs))


def layers_between_ends(job: LayerCostJob) -> int:
    """Returns how many layers it takes until the last of `job.path_tokens` outputs depends on the first input.

    An output depends on an input if its derivative with respect to that input is not 0.
    """
    layers: list[Layer] = []
    inputs = tf.random.normal([1, job.path_tokens, job.d_model])
    for number in itertools.count():
        layers.append(make_layer(job, number))
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            x = inputs
            for layer in layers:
                x = layer(x)
            last = tf.reduce_sum(x[:, -1])
        if tf.reduce_any(tape.gradient(last, inputs)[:, 0] != 0):
            break
    return len(layers)


def exponent(lengths: Sequence[int], values: Sequence[float]) -> float:
    """Fits the exponent e of value = c * length^e by least squares of the logarithms."""
    return float(np.polyfit(np.log(lengths), np.log(np.maximum(values, 1e-9)), 1)[0])


def memory_exponent(lengths: Sequence[int], peaks: Sequence[float]) -> float:
    """Fits the exponent e of peak = constant + c * length^e, where each length is twice the previous one.

    The constant is memory that does not depend on the length. It cancels in differences of successive peaks, and the
    differences of c * length^e grow with the same exponent.
    """
    return exponent(lengths[:-1], np.diff(peaks).tolist())


def _passes(layer: Layer, job: LayerCostJob) -> Callable[[int], None]:
    """Returns a function that runs a forward and backward pass at a given length."""
    layer(tf.zeros([1, 2, job.d_model]))  # creates the weights

    @tf.function(input_signature=[tf.TensorSpec([job.batch, None, job.d_model])])
    def both(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.reduce_sum(tf.square(layer(x)))
        sources = [x, *tape.watched_variables()]
        return tf.add_n([tf.reduce_sum(tf.abs(gradient)) for gradient in tape.gradient(total, sources)])

    return lambda length: both(tf.random.normal([job.batch, length, job.d_model])).numpy()


def _seconds(run: Callable[[], object]) -> float:
    """Returns the median time of a run."""
    durations: list[float] = []
    while len(durations) < _MIN_RUNS or sum(durations) < _MIN_SECONDS:
        start = time.perf_counter()
        run()
        durations.append(time.perf_counter() - start)
    return statistics.median(durations)

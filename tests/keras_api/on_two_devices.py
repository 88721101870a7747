"""Prints the losses of `fit` on one and on two devices as JSON. It is a separate program, because devices must be set
up first.
"""

import json
from collections.abc import Iterator

import keras
import numpy as np

from tests.keras_api.small_models import token_ids, transformer

# Each device averages over its own tokens. The losses equal those of one device if all have the same number of tokens.
TARGET = 2 + np.arange(8 * 5, dtype="int32").reshape(8, 5) % 11
INPUTS = {"source": token_ids(8, 6), "target": TARGET}


def losses() -> list[float]:
    """Returns the losses of two epochs of two batches."""
    return transformer().fit(INPUTS, TARGET, batch_size=4, shuffle=False, epochs=2, verbose=0).history["loss"]


def with_tensorflow() -> Iterator[tuple[str, int, list[float]]]:
    """Yields a name, the number of devices that hold the weights, and the losses."""
    import tensorflow as tf

    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    yield "one", 1, losses()
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        yield "mirrored", strategy.num_replicas_in_sync, losses()


def with_jax() -> Iterator[tuple[str, int, list[float]]]:
    """Yields the same as `with_tensorflow`."""
    yield "one", 1, losses()
    devices = keras.distribution.list_devices()
    layout = keras.distribution.LayoutMap(keras.distribution.DeviceMesh((1, 2), ["batch", "model"], devices))
    layout[".*inner_kernel"], layout[".*outer_kernel"] = (None, "model"), ("model", None)
    distributions = {
        "data_parallel": keras.distribution.DataParallel(devices=devices),
        "model_parallel": keras.distribution.ModelParallel(layout_map=layout, batch_dim_name="batch"),
    }
    for name, distribution in distributions.items():
        keras.distribution.set_distribution(distribution)
        kernel = transformer().encoder.layers[0].feed_forward.inner_kernel.value
        is_split = kernel.addressable_shards[0].data.shape != kernel.shape
        assert is_split == (name == "model_parallel")
        yield name, len(kernel.sharding.device_set), losses()


if __name__ == "__main__":
    runs = with_tensorflow() if keras.backend.backend() == "tensorflow" else with_jax()
    print(json.dumps({name: [count, values] for name, count, values in runs}))

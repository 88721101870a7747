"""Who runs a stage of the graph: TensorFlow's pool of threads, or one thread where the stage has little to do."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

# More sentences than this keep several threads busy.
FEW = 4


def by_one_thread_if_few(stage: Callable, rows: tf.Tensor, *inputs: Any) -> Any:
    """What a stage, a `tf.function`, returns for its inputs; one thread runs it if the scalar `rows` is at most `FEW`.

    A step of a search for a few sentences is hundreds of operations of some microseconds each, and handing each to a
    pool of threads takes longer than the operation. Both ways call one function, which is stored once. Where there is
    an accelerator, the pool runs all: one thread could wait for a device that waits for it.
    """

    def by_one_thread() -> Any:
        with tf.experimental.function_executor_type("SINGLE_THREADED_EXECUTOR"):
            return stage(*inputs)

    on_processor = tf.equal(tf.raw_ops.DeviceIndex(device_names=["CPU"]), 0)
    return tf.cond(on_processor & (rows <= FEW), by_one_thread, lambda: stage(*inputs))

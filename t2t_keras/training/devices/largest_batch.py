"""Tries the largest batch before training starts, so that memory does not run out an hour later."""

import itertools
from typing import TYPE_CHECKING

import numpy as np

from t2t_keras.data.batching import EpochPlans
from t2t_keras.data.pipeline import dataset_of, share_shape
from t2t_keras.errors import InputError
from t2t_keras.training.devices.strategy import distributed

if TYPE_CHECKING:
    from t2t_keras.training.backends import Step


def try_largest_batch(training: "Step", plans: EpochPlans, epoch: int) -> None:
    """Runs one step on each of the largest batches of an epoch's plan, and then restores the training's state.

    Raises:
        InputError: a batch does not fit in memory; names the settings to change.
    """
    state, step = training.read(), training.num_updates
    config, strategy = training.config, training.strategy
    for shape in plans.largest_shapes(epoch):
        rows, source_len, target_len = share_shape(shape, strategy.num_replicas_in_sync, config.accumulation_steps)
        element = {"source": np.ones((rows, source_len), np.int32), "target": np.ones((rows, target_len), np.int32)}
        try:
            training.run(distributed(strategy, dataset_of(itertools.repeat(element))), 1)
        except Exception as error:
            if not training.is_out_of_memory(error):
                raise
            raise InputError(
                f"out of memory on the largest batch ({rows} rows of {source_len} source and {target_len} target "
                f"tokens on each replica): lower train.tokens_per_batch={config.tokens_per_batch} or "
                f"raise train.accumulation_steps={config.accumulation_steps} ({str(error).splitlines()[0][:120]})"
            ) from None
    training.write(state, step)

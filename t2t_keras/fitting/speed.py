"""Measures how fast this machine trains, for the rules of `t2t_keras.planning.fit_rules`."""

import dataclasses
import itertools
import time

import numpy as np

from t2t_keras.data.pipeline import dataset_of
from t2t_keras.models import presets
from t2t_keras.models.families import make_model
from t2t_keras.planning.fit_rules import UNIT_TOKENS, UNIT_VOCAB_SIZE, cost
from t2t_keras.training.backends import Devices, make_step
from t2t_keras.training.devices.strategy import distributed

_LAYERS = 1  # of a small model, whose tracing takes only a few seconds
_LENGTH = 32
_SECONDS, _FEWEST_UPDATES, _UPDATES_PER_CALL = 2.0, 6, 3


def updates_per_minute(strategy: Devices, *, mixed_bfloat16: bool) -> float:
    """Measures the training speed by training a small model on random tokens for at least 2 seconds.

    Returns:
        Updates per minute, in the unit of `planning.fit_rules`.
    """
    config = presets.preset("tiny")
    sizes = {"num_encoder_layers": _LAYERS, "num_decoder_layers": _LAYERS, "vocab_size": UNIT_VOCAB_SIZE}
    policy = "mixed_bfloat16" if mixed_bfloat16 else "float32"
    model = make_model(dataclasses.replace(config.model, **sizes), policy)
    step = make_step(model, config.train, strategy)
    ids = np.random.default_rng(1).integers(3, UNIT_VOCAB_SIZE, [UNIT_TOKENS // _LENGTH, _LENGTH], np.int32)
    batches = distributed(strategy, dataset_of(itertools.repeat({"source": ids, "target": ids})))
    step.run(batches, 1)  # traces
    start, updates = time.monotonic(), 0
    while updates < _FEWEST_UPDATES or time.monotonic() < start + _SECONDS:
        step.run(batches, _UPDATES_PER_CALL)
        updates += _UPDATES_PER_CALL
    return 60 * updates / (time.monotonic() - start) * cost(_LAYERS, UNIT_VOCAB_SIZE)

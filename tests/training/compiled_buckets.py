"""Trains through all bucket shapes of a plan, with XLA like one TPU core and without it like a CPU.

It is a separate program, because XLA reports its compilations only in the log of a process started for this purpose:

TF_CPP_MIN_LOG_LEVEL=0 TF_CPP_VMODULE=device_compiler=1 python compiled_buckets.py CASE

prints a JSON object; CASE is a key of `CASES`.
"""

import json
import pathlib
import re
import sys
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf

sys.path.append(str(pathlib.Path(__file__).parent))

from t2t_keras.data.batching import bucket_shapes, plan_epoch
from t2t_keras.data.encoded import EncodedCorpus
from t2t_keras.data.pipeline import shares
from t2t_keras.training.devices.strategy import distributed
from tests.training.trajectories import make_step

LONGEST, TOKENS = 40, 128
TRAIN = {"static_shapes": True, "tokens_per_batch": TOKENS, "clip_norm": 0.5, "ema_decay": 0.9, "steps_per_call": 1}
# The compiled part: forward and backward pass, as with train.jit_compile, or the whole step with its update, as on a
# TPU.
CASES: dict[str, dict[str, Any]] = {
    "part": {"jit_compile": True},
    "whole": {},
    "part_bfloat16": {"jit_compile": True, "mixed_bfloat16": True},
    "whole_bfloat16": {"mixed_bfloat16": True},
    "whole_accumulated": {"accumulation_steps": 2},
}

Batch = dict[str, np.ndarray]


def corpus() -> EncodedCorpus:
    """Returns pairs of random tokens of every length up to the longest; each bucket has a partial batch."""
    random = np.random.default_rng(1)
    lengths = np.repeat(np.arange(2, LONGEST + 1), 2)
    sides = []
    for _ in range(2):
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        ids = random.integers(3, 50, offsets[-1]).astype(np.uint16)
        ids[offsets[1:] - 1] = 1
        sides.append((ids, offsets))
    return EncodedCorpus([(sides[0], sides[1])])


def batches() -> Iterator[Batch]:
    """Yields one epoch with every pair once."""
    data = corpus()
    plan = plan_epoch(data.source_lengths, data.target_lengths, TOKENS, 1, 0, static_shapes=True)
    for batch in range(plan.num_batches):
        yield shares(data, plan, batch, rows_multiple=2)[0]


def dataset() -> tf.data.Dataset:
    ids = tf.TensorSpec([None, None], tf.int32)
    return tf.data.Dataset.from_generator(batches, output_signature={"source": ids, "target": ids})


def losses(case: dict[str, Any], count: int) -> tuple[list[float], float]:
    """Returns the losses of an epoch with the actual training step, and its number of target tokens."""
    strategy = tf.distribute.get_strategy()
    training = make_step({**TRAIN, **case}, {"dropout_rate": 0.1}, strategy)
    metrics = training.run(distributed(strategy, dataset()), count)
    return metrics.loss.tolist(), float(metrics.tokens.sum())


def whole_step(case: dict[str, Any]) -> tf.types.experimental.PolymorphicFunction:
    """Returns the step, compiled from the batch to the updated weights, for unknown lengths, as the trainer uses it."""
    with mock.patch("t2t_keras.training.step.is_tpu", return_value=True):
        training = make_step({**TRAIN, **case}, {"dropout_rate": 0.1}, tf.distribute.get_strategy())
    ids = tf.TensorSpec([None, None], tf.int32)

    def step(batch):
        return training._replica_step(batch, tf.constant(training.last_step, tf.int64))

    return tf.function(step, jit_compile=True, input_signature=[{"source": ids, "target": ids}], autograph=False)


def dynamic_parts(hlo: str) -> list[str]:
    """Returns the operations of a compiled program whose shape depends on the data."""
    actual = re.findall(r"\[[^\]]*<=[^\]]*\]|\b(?:set|get)-dimension-size\b|PadToStatic|SliceToDynamic", hlo)
    return actual + [
        op for op in re.findall(r"\bdynamic-[a-z-]+", hlo) if op not in ("dynamic-slice", "dynamic-update-slice")
    ]


def main(name: str) -> None:
    case = CASES[name]
    count = sum(1 for _ in batches())
    plain = {key: value for key, value in case.items() if key != "jit_compile"}
    result: dict[str, Any] = {"buckets": len(bucket_shapes(LONGEST, TOKENS)), "steps": count, "dynamic": [], "hlo": 0}
    result["plain"], result["tokens"] = losses(plain, count)
    if "jit_compile" in case:
        result["compiled"], _ = losses(case, count)
    else:
        step = whole_step(case)
        result["compiled"] = [float(step(batch)[0]) for batch in batches()]
        for batch in {batch["source"].shape: batch for batch in batches()}.values():
            hlo = step.experimental_get_compiler_ir(batch)(stage="hlo")
            result["hlo"] += len(hlo)
            result["dynamic"] += dynamic_parts(hlo)
    result["corpus_tokens"] = int(corpus().target_lengths.sum())
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1])

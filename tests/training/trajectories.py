"""Trainings of tiny models on random pairs, step by step, on one replica or on several.

Several replicas need logical devices, which TensorFlow only creates before its first operation. The tests therefore
run this file as a separate program,

    python trajectories.py CASES.json RESULTS.npz

where CASES.json maps names to the arguments of `trajectory`. With a third argument, `orders`, the results also contain
the seeds of dropout and the order of the shares.
"""

import contextlib
import functools
import itertools
import json
import pathlib
import sys
import unittest.mock
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from t2t_keras.config import ModelConfig, TrainConfig, TransformerConfig
from t2t_keras.data.batching import EpochPlans, Position
from t2t_keras.data.encoded import EncodedCorpus
from t2t_keras.data.pipeline import training_dataset
from t2t_keras.models import families
from t2t_keras.models.contract import States
from t2t_keras.training import consistency
from t2t_keras.training.devices.strategy import distributed, make_strategy, next_shares
from t2t_keras.training.step import TrainingStep
from tests.training.tiny_families import tiny_family

MODEL = {
    "vocab_size": 50,
    "num_encoder_layers": 1,
    "num_decoder_layers": 1,
    "d_model": 16,
    "d_ff": 32,
    "num_heads": 2,
    "dropout_rate": 0.0,
}
# With a budget of 60 tokens, a batch has 5 to 30 pairs: shares are uneven, and with 8 replicas some are empty.
TRAIN = {"tokens_per_batch": 60, "warmup_steps": 20, "max_steps": 1000, "steps_per_call": 1}
STEPS = 10


def random_corpus(pairs: int = 150, seed: int = 3) -> EncodedCorpus:
    """Returns pairs of 2 to 12 random tokens per side, including the end symbol; low ids are the most frequent."""
    random = np.random.default_rng(seed)
    sides = []
    for _ in range(2):
        lengths = random.integers(2, 13, pairs)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        ids = 3 + (random.random(offsets[-1]) ** 2 * (MODEL["vocab_size"] - 3)).astype(np.uint16)
        ids[offsets[1:] - 1] = 1
        sides.append((ids, offsets))
    return EncodedCorpus([(sides[0], sides[1])])


def make_step(
    train: dict[str, Any], model: dict[str, Any] | str | ModelConfig, strategy: tf.distribute.Strategy
) -> TrainingStep:
    """Returns a new training step, always with the same weights."""
    config = TrainConfig(**{**TRAIN, **train})
    keras.utils.set_random_seed(config.seed)
    if isinstance(model, str):
        model = tiny_family(model, dropout_rate=0.0)
    elif isinstance(model, dict):
        model = TransformerConfig(**{**MODEL, **model})
    assert isinstance(model, ModelConfig)
    policy = "mixed_bfloat16" if config.mixed_bfloat16 else "float32"
    return TrainingStep(families.make_model(model, policy), config, strategy)


def make_batches(config: TrainConfig, strategy: tf.distribute.Strategy) -> Iterator:
    """Yields the batches of `random_corpus`."""
    corpus, replicas = random_corpus(), strategy.num_replicas_in_sync
    plans = EpochPlans(
        corpus.source_lengths, corpus.target_lengths, config.tokens_per_batch, config.seed, config.static_shapes
    )
    dataset = training_dataset(corpus, plans, Position(), replicas, range(replicas), config.accumulation_steps)
    return distributed(strategy, dataset)


@functools.cache
def devices(replicas: int) -> tf.distribute.Strategy:
    """Returns logical devices, always as one strategy: collective operations of two would have the same names."""
    return make_strategy("cpu", replicas)


def trajectory(
    replicas: int = 1,
    steps: int = STEPS,
    train: dict[str, Any] | None = None,
    model: dict[str, Any] | str | None = None,
    check_replicas: bool = False,
) -> dict[str, np.ndarray]:
    """Trains for some steps.

    Args:
        replicas: the number of logical devices.
        steps: the number of steps.
        train: changed fields of `TrainConfig`.
        model: changed fields of `TransformerConfig`, or a family, for its tiny model.
        check_replicas: whether replicas must have the same metrics in every step, and the same variables at the end.

    Returns:
        The metrics and measures by name, [steps] each, and the state by part and weight name.
    """
    # Random choices differ between replicas and parts; choices by the ids do not.
    with unittest.mock.patch.object(consistency, "token_cutoff", lambda ids, *_: tf.where(ids % 4 == 3, -ids, ids)):
        return run_trajectory(make_step(train or {}, model or {}, devices(replicas)), steps, check_replicas)


def run_trajectory(training: TrainingStep, steps: int = STEPS, check_replicas: bool = False) -> dict[str, np.ndarray]:
    """Returns the same as `trajectory` for an existing step."""
    strategy = training.strategy
    batches = make_batches(training.config, strategy)
    together = training.config.steps_per_call
    with same_metrics(strategy) if check_replicas else contextlib.nullcontext():
        metrics = [training.run(batches, min(together, steps - done)) for done in range(0, steps, together)]
    parts = [{**m._asdict(), **m.measures} for m in metrics]
    result = {name: np.concatenate([part[name] for part in parts]) for name in parts[0] if name != "measures"}
    for part, arrays in training.read().items():
        result.update({f"{part}/{name}": array for name, array in arrays.items()})
    if check_replicas:
        for variable in [*itertools.chain(*training._parts().values()), training.step]:
            copies = [copy.numpy() for copy in strategy.experimental_local_results(variable)]
            assert len(copies) == strategy.num_replicas_in_sync
            assert all(np.array_equal(copy, copies[0]) for copy in copies), variable.name
    return result


@contextlib.contextmanager
def same_metrics(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Asserts within the context that all replicas return the same as replica 0, bit for bit."""
    plain_run = strategy.run

    def run(function: Any, args: tuple = (), **options: Any) -> Any:
        results = plain_run(function, args=args, **options)
        for values in results:
            copies = strategy.experimental_local_results(values)
            for copy in copies[1:]:
                tf.debugging.assert_equal(copy, copies[0])
        return results

    strategy.run = run
    try:
        yield
    finally:
        strategy.run = plain_run


def dropout_seeds(replicas: int, steps: int, train: dict[str, Any]) -> np.ndarray:
    """Returns the seeds that the model gets in training, int32 [steps, replicas and parts in any order, 2]."""
    strategy = devices(replicas)
    training = make_step(train, {}, strategy)
    seeds: list[np.ndarray] = []

    def states(inputs: dict[str, tf.Tensor], *, seed: tf.Tensor, **settings: bool) -> States:
        del settings
        tf.numpy_function(lambda value: seeds.append(value.copy()), [seed], [])
        # Replaces the network, which takes long to trace.
        return States(network.target_embedding(inputs["target"]), tf.constant(0.0))

    network: keras.Model = training.model
    network.states = states
    training.run(make_batches(training.config, strategy), steps)
    return np.array(seeds).reshape(steps, -1, 2)


def element_order(replicas: int, steps: int) -> np.ndarray:
    """Returns the elements of a dataset that the replicas get, int64 [steps, replicas]."""
    strategy = devices(replicas)
    numbers = distributed(strategy, tf.data.Dataset.range(replicas * steps))

    @tf.function
    def step() -> tuple[tf.Tensor, ...]:
        replica_elements = strategy.run(lambda number: number, args=(next_shares(strategy, numbers),))
        return strategy.experimental_local_results(replica_elements)

    return np.array([[int(number) for number in step()] for _ in range(steps)])


def main(cases_path: str, results_path: str, orders: str = "") -> None:
    cases = json.loads(pathlib.Path(cases_path).read_text(encoding="utf-8"))
    devices(max(case.get("replicas", 1) for case in cases.values()))
    results: dict[str, Any] = {
        f"{name}:{key}": array for name, case in cases.items() for key, array in trajectory(**case).items()
    }
    if orders:
        replicas = max(case.get("replicas", 1) for case in cases.values())
        results["seeds"] = dropout_seeds(replicas, 2, {})
        results["order"] = element_order(replicas, 3)
    np.savez(results_path, **results)


if __name__ == "__main__":
    main(*sys.argv[1:])

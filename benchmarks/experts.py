"""Measures the cost of experts: the time of a layer and of a training step, by the numbers of experts.

    python -m benchmarks.experts
    python -m benchmarks.experts --num_experts=8,32,128 --experts_per_token=2 --d_expert=512 --tokens=8192

Both times are of forward and backward passes. They take turns with a feed-forward network that computes as much as the
first number of `--experts_per_token`. The table also has the counted operations as ratios to those of this network. The
overhead of experts is time that grows with their number although the operations do not.
"""

import argparse
import dataclasses
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np

from benchmarks.transformer_preset import transformer_preset
from benchmarks.turns import Worker, number, serve, take_turns
from t2t_keras.config import TransformerConfig
from t2t_keras.machine.processor import processor
from t2t_keras.values import PositiveInt

LENGTH = 24  # tokens of a sentence
FEED_FORWARD = "feed-forward"
_LAYER_RUNS = 20


def model_config(preset: str, num_experts: int, experts_per_token: int, d_expert: int) -> TransformerConfig:
    """Returns a preset with experts, or with a feed-forward network that computes as much as the experts of a token."""
    sizes: dict[str, Any] = {"num_experts": num_experts, "d_ff": experts_per_token * d_expert}
    if num_experts:
        sizes |= {"experts_per_token": experts_per_token, "d_expert": d_expert}
    return dataclasses.replace(transformer_preset(preset), vocab_size=8000, **sizes)


def layer_flops(config: TransformerConfig) -> int:
    """Returns the operations of one layer's matrices per token, forward and backward."""
    width = config.experts_per_token * config.expert_width() + config.num_experts if config.num_experts else config.d_ff
    return 6 * 2 * config.d_model * width


def worker(sizes: dict[str, Any]) -> None:
    """Times one configuration in a separate process."""
    config = model_config(sizes["preset"], sizes["num_experts"], sizes["experts_per_token"], sizes["d_expert"])
    layer, steps = _layer(config, sizes["tokens"]), _steps(config, sizes["tokens"], sizes["steps"])

    def work() -> dict[str, float]:
        return {"layer": _seconds(layer, _LAYER_RUNS), "step": _seconds(steps, 1) / sizes["steps"]}

    work()  # traces
    flops = {"layer": layer_flops(config), "step": sum(config.training_flops(LENGTH).values())}
    serve(work, {"parameters": sum(config.parameter_counts().values()), "flops": flops})


def _seconds(run: Callable[[], Any], times: int) -> float:
    """Returns the seconds of one run."""
    started = time.perf_counter()
    for _ in range(times):
        run()
    return (time.perf_counter() - started) / times


def _layer(config: TransformerConfig, tokens: int) -> Callable[[], Any]:
    """Returns a forward and backward pass of a layer over rows without padding, as in training."""
    import tensorflow as tf

    from t2t_keras.layers.collectors import AuxiliaryLosses
    from t2t_keras.layers.experts import feed_forward_layer

    layer = feed_forward_layer(config, dtype="float32")
    layer.build((None, None, config.d_model))
    rows = tf.range(tokens // LENGTH * LENGTH)
    inputs = tf.random.stateless_normal([tokens // LENGTH, LENGTH, config.d_model], [1, 2])

    @tf.function(autograph=False)
    def run() -> list[tf.Tensor]:
        variables = [inputs, *(variable.value for variable in layer.trainable_variables)]
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            with AuxiliaryLosses() as collector:
                outputs = layer(inputs, seed=tf.constant([1, 2]), token_rows=rows, training=True)
            total = tf.reduce_sum(outputs * inputs) + tf.reduce_sum(collector.total())
        return [tf.convert_to_tensor(g) for g in tape.gradient(total, variables) if g is not None]

    return run


def _steps(config: TransformerConfig, tokens: int, steps: int) -> Callable[[], Any]:
    """Returns a function that runs some steps of this project's trainer."""
    import tensorflow as tf

    from t2t_keras.config import TrainConfig
    from t2t_keras.models.families import make_model
    from t2t_keras.training.devices.strategy import distributed, make_strategy
    from t2t_keras.training.step import TrainingStep

    random = np.random.default_rng(1)
    ids = {side: random.integers(3, config.vocab_size, (tokens // LENGTH, LENGTH)) for side in ("source", "target")}
    batch = {side: values.astype(np.int32) for side, values in ids.items()}
    strategy, model = make_strategy("cpu"), make_model(config)
    training = TrainingStep(model, TrainConfig(), strategy)
    options = tf.data.Options()
    options.autotune.enabled = False
    iterator = distributed(strategy, tf.data.Dataset.from_tensors(batch).repeat().with_options(options))
    return lambda: training.run(iterator, steps)


def main() -> None:
    """Runs each configuration and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="tiny", help="a preset of the Transformer, for the other sizes")
    parser.add_argument(
        "--num_experts",
        type=number(tuple[PositiveInt, ...]),
        default=(4, 8, 16, 32, 64),
        help="numbers of experts, separated by commas; k means the first of --experts_per_token",
    )
    parser.add_argument(
        "--experts_per_token",
        type=number(tuple[PositiveInt, ...]),
        default=(2, 1, 4, 8),
        help="numbers of experts of a token, separated by commas; used with the last but one of --num_experts",
    )
    parser.add_argument("--d_expert", type=number(), default=128)
    parser.add_argument("--tokens", type=number(), default=4096, help="tokens per side of a batch")
    parser.add_argument("--steps", type=number(), default=2, help="training steps per turn")
    parser.add_argument("--rounds", type=number(), default=5)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.worker:
        worker(json.loads(flags.worker))
        return
    counts, per_token = flags.num_experts, flags.experts_per_token
    common = {name: getattr(flags, name) for name in ("preset", "d_expert", "tokens", "steps")}
    at_k = [{"num_experts": count, "experts_per_token": per_token[0]} for count in (0, *counts)]
    at_count = [{"num_experts": counts[-2:][0], "experts_per_token": k} for k in sorted(per_token)]
    print(f"{common} on {processor()}, medians of {flags.rounds} turns")
    compare([{**common, **sizes} for sizes in at_k], flags.rounds)
    compare([{**common, **sizes} for sizes in (at_k[0], *at_count)], flags.rounds)


def compare(configurations: list[dict[str, Any]], rounds: int) -> None:
    """Times configurations turn by turn, and prints them with ratios to the first."""
    with tempfile.TemporaryDirectory() as folder:
        workers = []
        for number, sizes in enumerate(configurations):
            experts = f"{sizes['experts_per_token']} of {sizes['num_experts']}"
            name = experts if sizes["num_experts"] else FEED_FORWARD
            command = [sys.executable, "-m", "benchmarks.experts", f"--worker={json.dumps(sizes)}"]
            workers.append(Worker(name, command, os.path.join(folder, f"{number}.log")))
            if workers[-1].failure:
                raise SystemExit(f"{name}: {workers[-1].failure}")
        take_turns(workers, rounds)
        report(workers)
        for each in workers:
            each.close()


def report(workers: list[Worker]) -> None:
    """Prints the table."""
    first = workers[0]
    print("\n| experts | layer, ms | time | operations | step, ms | time | operations | parameters | quiet turns |")
    print("|---|---|---|---|---|---|---|---|---|")
    for each in workers:
        cells = [each.name]
        for part in ("layer", "step"):
            seconds = each.median(part)
            ratios = seconds / first.median(part), each.about["flops"][part] / first.about["flops"][part]
            cells += [f"{seconds * 1e3:,.1f}", *(f"{ratio:.2f}" for ratio in ratios)]
        print(f"| {' | '.join(cells)} | {each.about['parameters']:,} | {len(each.quiet_turns)} |")


if __name__ == "__main__":
    main()

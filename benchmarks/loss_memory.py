"""Measures the peak memory of a training step by vocabulary size.

    python -m benchmarks.loss_memory [--tokens=4096] [--vocab_sizes=8000,37000]

Each size runs in a separate process. The program prints the increase of the peak memory over an idle process with
TensorFlow, minus the weights and the optimizer's state.
"""

import argparse
import json
import os
import subprocess
import sys

from benchmarks.turns import number
from t2t_keras.machine.peak_memory import peak_bytes
from t2t_keras.values import PositiveInt

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def measure(preset: str, vocab_size: int, tokens: int, length: int) -> dict[str, float]:
    """Runs three steps of `tokens` target tokens, and returns the peak memory in mebibytes."""
    import numpy as np
    import tensorflow as tf

    from t2t_keras.config import TrainConfig
    from t2t_keras.models.transformer import Transformer
    from t2t_keras.training.devices.strategy import distributed, make_strategy
    from t2t_keras.training.step import TrainingStep

    rng = np.random.default_rng(1)
    shape = (tokens // length, length)
    batch = {side: rng.integers(3, vocab_size, shape).astype(np.int32) for side in ("source", "target")}
    strategy = make_strategy("cpu")
    tf.matmul(tf.ones([512, 512]), tf.ones([512, 512]))  # memory that libraries allocate on first use
    idle = peak_bytes()
    model = Transformer.from_preset(preset, vocab_size=vocab_size)
    step = TrainingStep(model, TrainConfig(), strategy)
    dataset = tf.data.Dataset.from_tensors(batch).repeat()
    step.run(distributed(strategy, dataset), 3)
    peak = (peak_bytes() - idle) / 2**20
    state = 4 * 4 * model.count_params() / 2**20  # weights, two moments, and the copy of the model
    return {"peak": peak, "weights, optimizer and model": state, "the rest": peak - state}


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--tokens", type=number(), default=4096)
    parser.add_argument("--length", type=number(), default=32)
    parser.add_argument("--vocab_sizes", type=number(tuple[PositiveInt, ...]), default=(8000, 37000))
    parser.add_argument("--worker", type=number(), help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.worker:
        print(json.dumps(measure(flags.preset, flags.worker, flags.tokens, flags.length)))
        return
    other_memory = []
    print("| vocabulary | peak MiB | weights, optimizer and model MiB | the rest MiB | logits of a whole batch MiB |")
    print("|---|---|---|---|---|")
    for vocab_size in flags.vocab_sizes:
        command = [sys.executable, "-m", "benchmarks.loss_memory", *sys.argv[1:], f"--worker={vocab_size}"]
        lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
        numbers = json.loads(lines[-1])
        other_memory.append(numbers["the rest"])
        logits = 4 * flags.tokens * vocab_size / 2**20
        cells = " | ".join(f"{number:,.0f}" for number in (*numbers.values(), logits))
        print(f"| {vocab_size:,} | {cells} |", flush=True)
    print(f"\nthe rest at the largest vocabulary / at the smallest: {other_memory[-1] / other_memory[0]:.2f}")


if __name__ == "__main__":
    main()

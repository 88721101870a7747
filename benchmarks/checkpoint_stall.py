"""Measures how long training pauses for a checkpoint that is written in the foreground or in the background.

    python -m benchmarks.checkpoint_stall [--preset=base] [--tokens=512] [--rounds=3] [--directory=.]

The program trains on a small batch and saves the complete state between some steps. The printed pause is the time
between the ends of two steps with a save between them, minus the usual time of a step.
"""

import argparse
import functools
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from benchmarks.turns import number
from t2t_keras.models import presets
from t2t_keras.models.families import make_model
from t2t_keras.runs import checkpoints
from t2t_keras.runs.background import CheckpointWriter
from t2t_keras.training.devices.strategy import distributed, make_strategy
from t2t_keras.training.step import TrainingStep

_ROW_TOKENS = 32
_STEPS_AFTER_A_SAVE = 12


def main() -> None:
    """Measures both methods in turn and prints the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="base")
    parser.add_argument("--tokens", type=number(), default=512)
    parser.add_argument("--rounds", type=number(), default=3)
    parser.add_argument("--directory", default=".", help="folder for temporary checkpoints")
    args = parser.parse_args()
    training, batches = _training(args.preset, args.tokens)
    training.run(batches, 2)
    with tempfile.TemporaryDirectory(dir=args.directory) as directory:
        writer = CheckpointWriter(directory, keep=1)
        methods: dict[str, Callable[[int], None]] = {
            "in the foreground": lambda step: _save(training, directory, step),
            "in the background": lambda step: _save_in_background(training, writer, step),
        }
        stalls: dict[str, list[float]] = {name: [] for name in methods}
        others: dict[str, list[float]] = {name: [] for name in methods}
        for step in range(args.rounds):
            for name, save in methods.items():
                first, *rest = _gaps(training, batches, functools.partial(save, 2 * step))
                writer.wait()
                usual = statistics.median(rest[-4:])
                stalls[name].append(first - usual)
                others[name].append(sum(gap - usual for gap in rest))
        saved = checkpoints.latest(directory)
        assert saved
        size = sum(path.stat().st_size for path in saved.path.iterdir())
    print(f"{args.preset}, {args.tokens} tokens per step of {usual:.2f} s, checkpoints of {size / 2**20:.0f} MiB")
    for name in methods:
        print(
            f"saving {name}: training pauses for {statistics.median(stalls[name]):.2f} s, and the "
            f"{_STEPS_AFTER_A_SAVE - 1} steps after it take {statistics.median(others[name]):.2f} s longer in total"
        )


def _training(preset: str, tokens: int) -> tuple[TrainingStep, Iterator[dict[str, tf.Tensor]]]:
    config = presets.preset(preset)
    strategy = make_strategy("cpu")
    model = make_model(config.model)
    model.build()
    ids = np.random.default_rng(1).integers(3, config.model.vocab_size, (tokens // _ROW_TOKENS, _ROW_TOKENS), np.int32)
    batch = {"source": ids, "target": ids}
    dataset = tf.data.Dataset.from_tensors(batch).repeat()
    return TrainingStep(model, config.train, strategy), distributed(strategy, dataset)


def _gaps(training: TrainingStep, batches: Iterator, save: Callable[[], None]) -> list[float]:
    """Returns the seconds between the ends of consecutive steps; a checkpoint is saved before the first of them."""
    gaps = []
    training.run(batches, 1)
    end = time.monotonic()
    save()
    for _ in range(_STEPS_AFTER_A_SAVE):
        training.run(batches, 1)
        gaps.append(time.monotonic() - end)
        end = time.monotonic()
    return gaps


def _save(training: TrainingStep, directory: str, step: int) -> None:
    weights, optimizer = _read(training)
    checkpoints.save(directory, step, weights, optimizer, {})
    checkpoints.prune(directory, 1)


def _save_in_background(training: TrainingStep, writer: CheckpointWriter, step: int) -> None:
    writer.save(step + 1, *_read(training), {})


def _read(training: TrainingStep) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    state = training.read()
    return state["weights"], {
        f"{part}/{name}": array for part in ("first_moments", "second_moments") for name, array in state[part].items()
    }


if __name__ == "__main__":
    main()

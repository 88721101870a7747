"""Batches a second of the data pipeline, and how many times the trainer's need that is.

python -m benchmarks.pipeline --data_dir=data/mine --model_dir=runs/mine
"""

import argparse
import os
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from t2t_keras.config import TrainConfig
from t2t_keras.data.batching import EpochPlans, Position
from t2t_keras.data.encoded import EncodedCorpus
from t2t_keras.data.pipeline import training_dataset
from t2t_keras.runs.records import read_metrics
from t2t_keras.runs.run import Run

_WARM_UP_BATCHES = 10


def main() -> None:
    """Measures and prints."""
    flags = _flags()
    train = Run(flags.model_dir).config.train if flags.model_dir else TrainConfig()
    tokens_per_batch = flags.tokens_per_batch or train.tokens_per_batch
    corpus = EncodedCorpus.open(flags.data_dir, "train")
    plans = EpochPlans(
        corpus.source_lengths, corpus.target_lengths, tokens_per_batch, train.seed, static_shapes=train.static_shapes
    )
    started = time.perf_counter()
    plan = plans.plan(0)
    print(f"{len(corpus.source_lengths):,} pairs planned in {time.perf_counter() - started:.2f} s")
    source_fill, target_fill = (
        int(lengths[plan.order].sum()) / int(plan.shapes[:, 0] @ plan.shapes[:, side])
        for side, lengths in enumerate((corpus.source_lengths, corpus.target_lengths), start=1)
    )
    print(f"{plan.num_batches:,} batches an epoch, filled to {source_fill:.1%} (source), {target_fill:.1%} (target)")
    batches_per_second = _measured(corpus, plans, flags.replicas, flags.seconds)
    print(f"{batches_per_second:,.0f} batches/s of {tokens_per_batch:,} tokens for {flags.replicas} replicas")
    steps_per_second = flags.steps_per_second or (_trainer_rate(flags.model_dir) if flags.model_dir else None)
    if steps_per_second:
        ratio = batches_per_second / steps_per_second
        print(f"{ratio:,.1f} times the trainer's {steps_per_second:.2f} steps/s (10 or more is wanted)")


def _measured(corpus: EncodedCorpus, plans: EpochPlans, num_replicas: int, seconds: float) -> float:
    """Global batches a second when nothing but the pipeline runs."""
    elements = iter(training_dataset(corpus, plans, Position(), num_replicas, range(num_replicas)))
    for _ in range(_WARM_UP_BATCHES * num_replicas):
        next(elements)
    batches = 0
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        for _ in range(num_replicas):
            next(elements)
        batches += 1
    return batches / (time.perf_counter() - started)


def _trainer_rate(model_dir: str) -> float | None:
    """The median steps a second in a run's metrics, None if it has none yet."""
    records = read_metrics(Run(model_dir).metrics_path)
    rates = [record["steps_per_second"] for record in records if record.get("steps_per_second")]
    return statistics.median(rates) if rates else None


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_dir", required=True, help="prepared data")
    parser.add_argument("--model_dir", help="a run: its batch size and its measured steps/s are used")
    parser.add_argument("--steps_per_second", type=float, help="the trainer's, if not that of --model_dir")
    parser.add_argument("--tokens_per_batch", type=int, help="budget of a global batch, if not that of --model_dir")
    parser.add_argument("--replicas", type=int, default=1, help="into how many shares each batch is dealt")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long to measure")
    return parser.parse_args()


if __name__ == "__main__":
    main()

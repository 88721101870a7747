"""Measures the batches per second of the data pipeline, and compares them with the speed of the trainer.

    python -m benchmarks.pipeline --data_dir=data/mine --model_dir=runs/mine

The pipeline should be at least 10 times as fast as the trainer.
"""

import argparse
import os
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from benchmarks.turns import number
from t2t_keras.config import TrainConfig
from t2t_keras.data.batching import EpochPlans, Position
from t2t_keras.data.encoded import EncodedCorpus
from t2t_keras.data.pipeline import training_dataset
from t2t_keras.runs.records import read_metrics
from t2t_keras.runs.run import Run
from t2t_keras.values import PositiveFloat

_WARM_UP_BATCHES = 10


def main() -> None:
    """Measures the pipeline and prints the results."""
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
    print(f"{plan.num_batches:,} batches per epoch, filled to {source_fill:.1%} (source), {target_fill:.1%} (target)")
    batches_per_second = _measured(corpus, plans, flags.replicas, flags.seconds)
    print(f"{batches_per_second:,.0f} batches/s of {tokens_per_batch:,} tokens for {flags.replicas} replicas")
    steps_per_second = flags.steps_per_second or (_trainer_rate(flags.model_dir) if flags.model_dir else None)
    if steps_per_second:
        ratio = batches_per_second / steps_per_second
        print(f"{ratio:,.1f} times the trainer's {steps_per_second:.2f} steps/s")


def _measured(corpus: EncodedCorpus, plans: EpochPlans, num_replicas: int, seconds: float) -> float:
    """Returns the global batches per second if only the pipeline runs."""
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
    """Returns the median steps per second in the metrics of a run, or None if there are none yet."""
    records = read_metrics(Run(model_dir).metrics_path)
    rates = [record["steps_per_second"] for record in records if record.get("steps_per_second")]
    return statistics.median(rates) if rates else None


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_dir", required=True, help="prepared data")
    parser.add_argument("--model_dir", help="a run, for the batch size and the measured steps per second")
    parser.add_argument(
        "--steps_per_second", type=number(PositiveFloat), help="speed of the trainer; default: that of --model_dir"
    )
    parser.add_argument(
        "--tokens_per_batch", type=number(), help="token budget of a global batch; default: that of --model_dir"
    )
    parser.add_argument("--replicas", type=number(), default=1, help="number of shares of each batch")
    parser.add_argument("--seconds", type=number(PositiveFloat), default=10.0, help="duration of the measurement")
    return parser.parse_args()


if __name__ == "__main__":
    main()

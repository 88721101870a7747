"""Compares the training speed with that of the same network in other libraries, and with a large product.

    python -m benchmarks.train_step --data_dir=data/multi30k --preset=tiny --tokens_per_batch=4096
    python -m benchmarks.train_step --data_dir=data/multi30k --preset=base --tokens_per_batch=1024
    python -m benchmarks.train_step --data_dir=data/multi30k --preset=conv_tiny --tokens_per_batch=4096
    python -m benchmarks.train_step --data_dir=data/multi30k --engines=ours,ours_simcut,ours_rdrop

The engines take turns. A family other than the Transformer is compared with the same network in keras.layers, of
benchmarks/FAMILY_in_keras.py. An engine with missing packages is skipped with a note. `--python marian=PATH` runs an
engine with the interpreter of a different environment.
"""

import argparse
import dataclasses
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from benchmarks.transformer_preset import plain_sizes
from benchmarks.turns import Worker, number, take_turns
from t2t_keras.config import ModelConfig, TransformerConfig
from t2t_keras.data.batching import plan_epoch
from t2t_keras.data.encoded import EncodedCorpus
from t2t_keras.data.prepare import PreparedData
from t2t_keras.models import presets
from t2t_keras.values import Rate

BUCKETS = (8, 12, 16, 20, 24, 28, 32, 40, 48, 64)  # the longest pair of each
ENGINES = ("ours", "ours_bfloat16", "keras_layers", "keras_layers_mapped", "matrix")  # of any family
ENGINES_OF_THE_TRANSFORMER = (*ENGINES[:-1], "keras_hub", "keras_hub_mapped", "marian", "matrix")


class Batches(NamedTuple):
    """The batches that the engines train on.

    Attributes:
        num_batches: number of batches per turn.
        vocab_size: vocabulary size of both sides.
        source_tokens: number of source tokens in all batches, without padding.
        target_tokens: number of target tokens in all batches, without padding.
        fill: share of the targets that is not padding.
        length: mean length of a target.
    """

    num_batches: int
    vocab_size: int
    source_tokens: int
    target_tokens: int
    fill: float
    length: float


def write_batches(data_dir: str, batching: str, tokens_per_batch: int, count: int, path: str) -> Batches:
    """Writes the first batches of an epoch."""
    data = PreparedData.open(data_dir)
    corpus = data.split("train")
    make = planned_batches if batching == "planned" else bucketed_batches
    batches = list(itertools.islice(make(corpus, tokens_per_batch), count))
    if len(batches) < count:
        raise SystemExit(f"an epoch has {len(batches)} batches of {tokens_per_batch} tokens; --batches={count} is more")
    sides = zip(("source", "target"), zip(*batches, strict=True), strict=True)
    np.savez(path, **{f"{side}_{i}": array for side, arrays in sides for i, array in enumerate(arrays)})
    source_tokens, target_tokens = (sum(int((pair[side] != 0).sum()) for pair in batches) for side in (0, 1))
    fill = target_tokens / sum(target.size for _, target in batches)
    length = target_tokens / sum(len(target) for _, target in batches)
    return Batches(count, data.tokenizer.vocab_size, source_tokens, target_tokens, fill, length)


def planned_batches(corpus: EncodedCorpus, tokens_per_batch: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields batches as this project's trainer makes them, from sentences of similar lengths."""
    plan = plan_epoch(corpus.source_lengths, corpus.target_lengths, tokens_per_batch, seed=1, epoch=0)
    for i in range(plan.num_batches):
        _, source_len, target_len = plan.shape(i)
        yield corpus.source_ids(plan.rows(i), source_len), corpus.target_ids(plan.rows(i), target_len)


def bucketed_batches(corpus: EncodedCorpus, tokens_per_batch: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields batches as tf.data users make them: pairs of one length bucket, padded to the end of the bucket."""
    import tensorflow as tf

    lengths = np.maximum(corpus.source_lengths, corpus.target_lengths)
    rows = np.random.default_rng(1).permutation(np.flatnonzero(lengths <= BUCKETS[-1]))

    def pairs() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for row in rows:
            yield corpus.source_ids(np.array([row]))[0], corpus.target_ids(np.array([row]))[0]

    ids = tf.TensorSpec([None], tf.int32)
    dataset = tf.data.Dataset.from_generator(pairs, output_signature=(ids, ids))
    return dataset.bucket_by_sequence_length(
        lambda source, target: tf.maximum(tf.size(source), tf.size(target)),
        bucket_boundaries=[end + 1 for end in BUCKETS],
        bucket_batch_sizes=[max(tokens_per_batch // end, 1) for end in (*BUCKETS, BUCKETS[-1])],
        pad_to_bucket_boundary=True,
        drop_remainder=True,
    ).as_numpy_iterator()


def main() -> None:
    """Creates the batches, runs the engines and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_dir", required=True, help="prepared data (launch.prepare_data)")
    parser.add_argument("--preset", default="tiny", help="sizes")
    parser.add_argument(
        "--batching",
        choices=("planned", "bucketed"),
        default="planned",
        help="how batches are formed: planned, as in this project, or bucketed, as in tf.data",
    )
    parser.add_argument("--tokens_per_batch", type=number(), default=4096)
    parser.add_argument("--batches", type=number(), default=8, help="batches per turn")
    parser.add_argument("--rounds", type=number(), default=5)
    parser.add_argument("--dropout_rate", type=number(Rate), default=0.1)
    parser.add_argument("--engines", help="engines, separated by commas; default: all with the preset's family")
    parser.add_argument("--python", action="append", default=[], help="ENGINE=interpreter")
    parser.add_argument("--output", help="JSON file for the numbers")
    flags = parser.parse_args()
    model = presets.preset(flags.preset).model
    with tempfile.TemporaryDirectory() as folder:
        batches, sizes_path = os.path.join(folder, "batches.npz"), os.path.join(folder, "sizes.json")
        settings = (flags.batching, flags.tokens_per_batch, flags.batches)
        written = write_batches(flags.data_dir, *settings, batches)
        sizes = sizes_of(model, written.vocab_size, flags.dropout_rate)
        sized = dataclasses.replace(model, vocab_size=written.vocab_size)
        of_two_tokens = sum(sized.training_flops(round(written.length)).values())  # a source and a target token
        flops = of_two_tokens * (written.source_tokens + written.target_tokens) / 2
        engines = ENGINES_OF_THE_TRANSFORMER if model.family == "transformer" else ENGINES
        with open(sizes_path, "w") as file:
            json.dump(sizes, file)
        interpreters = dict(item.split("=", 1) for item in flags.python)
        workers = []
        for engine in flags.engines.split(",") if flags.engines else engines:
            command = [interpreters.get(engine, sys.executable), "-m", "benchmarks.train_step_engines"]
            command += [engine, batches, sizes_path]
            worker = Worker(engine, command, os.path.join(folder, f"{engine}.log"))
            if worker.failure:
                print(f"{engine} is skipped: {worker.failure}", file=sys.stderr)
            else:
                workers.append(worker)
        take_turns(workers, flags.rounds)
        report(workers, sizes, written, flops, flags.output)
        for worker in workers:
            worker.close()


def sizes_of(model: ModelConfig, vocab_size: int, dropout_rate: float) -> dict:
    """Returns all settings of a preset, or for a Transformer the sizes that all engines know."""
    changes = {"family": model.family, "vocab_size": vocab_size, "dropout_rate": dropout_rate}
    if not isinstance(model, TransformerConfig):
        return {**dataclasses.asdict(model), **changes}
    return {**plain_sizes(model), **changes}


def report(workers: list[Worker], sizes: dict, batches: Batches, flops: float, output: str | None) -> None:
    """Prints the table; `flops` are the operations of a turn's products, forward and backward."""
    limits = [worker.median("flops_per_second") for worker in workers if worker.name == "matrix"]
    engines = [worker for worker in workers if worker.name != "matrix"]
    rates = {worker.name: batches.target_tokens / worker.median("seconds") for worker in engines}
    tokens = f"{batches.target_tokens} target tokens, fill of the targets {batches.fill:.3f}"
    print(f"{sizes}\n{batches.num_batches} batches, {tokens}\n")
    print(
        "| engine | target tokens/s | ours / it | of a large product's rate | ms/step | CPU s/step | page faults/step "
        "| peak GiB | parameters | quiet turns |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for worker in engines:
        rate, seconds = rates[worker.name], worker.median("seconds")
        ratio = f"{rates['ours'] / rate:.2f}" if "ours" in rates else ""
        share = f"{flops / seconds / limits[0]:.2f}" if limits else ""
        print(
            f"| {worker.name} | {rate:,.0f} | {ratio} | {share} | {seconds / batches.num_batches * 1e3:,.0f} "
            f"| {worker.median('cpu_seconds') / batches.num_batches:.2f} "
            f"| {worker.median('page_faults') / batches.num_batches:,.0f} | {worker.median('peak_gib'):.2f} "
            f"| {worker.about['parameters']:,} | {len(worker.quiet_turns)} |"
        )
    if limits:
        print(f"\na large float32 product: {limits[0] / 1e9:,.0f} GFLOP/s")
    peers = [rate for name, rate in rates.items() if not name.startswith("ours")]
    if peers and "ours" in rates:
        print(f"\nours / best peer: {rates['ours'] / max(peers):.2f}")
    if output:
        with open(output, "w") as file:
            json.dump({"sizes": sizes, "rates": rates, "turns": {w.name: w.turns for w in workers}}, file, indent=1)


if __name__ == "__main__":
    main()

"""Measures the cost of distribution: a global batch on one CPU device, on logical devices, and in processes.

    python -m benchmarks.replicas --data_dir=data/multi30k --preset=tiny --tokens_per_batch=4096

All of them share the same cores, and would take equally long if distribution cost nothing. One device computes two
halves of its batch in parallel (see t2t_keras/training/devices/strategy.py), like two replicas. Each worker process has
a share of the cores. Workers communicate through sockets of this machine.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
from benchmarks.turns import Worker, number, serve, take_turns
from t2t_keras.values import PositiveInt

WORKERS = " workers"  # suffix of an engine of several processes, after their number


def main() -> None:
    """Runs the engines turn by turn and prints the table; with --engine, runs one as a worker."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_dir", required=True, help="prepared data (launch.prepare_data)")
    parser.add_argument("--preset", default="tiny", help="sizes")
    parser.add_argument("--tokens_per_batch", type=number(), default=4096, help="token budget of the global batch")
    parser.add_argument("--steps", type=number(), default=8, help="steps per turn")
    parser.add_argument("--rounds", type=number(), default=5)
    parser.add_argument(
        "--replicas",
        type=number(tuple[PositiveInt, ...]),
        default=(1, 2, 4, 8),
        help="numbers of logical devices, separated by commas",
    )
    parser.add_argument(
        "--workers",
        type=number(tuple[PositiveInt, ...]),
        default=(2, 3),
        help="numbers of processes, separated by commas; may be empty",
    )
    parser.add_argument("--output", help="JSON file for the numbers")
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.engine:
        run_engine(flags)
        return
    names = [*map(str, flags.replicas), *(f"{count}{WORKERS}" for count in flags.workers)]
    with tempfile.TemporaryDirectory() as folder:
        engines = []
        for name in names:
            command = [sys.executable, "-m", "benchmarks.replicas", *sys.argv[1:], f"--engine={name}"]
            engine = Worker(name, command, os.path.join(folder, f"{name}.log"))
            if engine.failure:
                sys.exit(f"{name}: {engine.failure}")
            engines.append(engine)
        take_turns(engines, flags.rounds)
        report(engines, flags.steps, flags.output)
        for engine in engines:
            engine.close()


def report(engines: list[Worker], steps: int, output: str | None) -> None:
    """Prints the table."""
    base = engines[0]
    print("| global batch on | ms/step | of the first | CPU s/step | loss of the last step | quiet turns |")
    print("|---|---|---|---|---|---|")
    for engine in engines:
        seconds, name = engine.median("seconds"), engine.name
        label = name if name.endswith(WORKERS) else f"{name} logical device{'s' * (name != '1')}"
        print(
            f"| {label} | {seconds / steps * 1e3:,.0f} | {seconds / base.median('seconds'):.3f} "
            f"| {engine.median('cpu_seconds') / steps:.2f} | {engine.median('loss'):.5f} | {len(engine.quiet_turns)} |"
        )
    if output:
        with open(output, "w") as file:
            json.dump({engine.name: engine.turns for engine in engines}, file, indent=1)


def run_engine(flags: argparse.Namespace) -> None:
    """Runs one engine: a number of steps on each request, the same as those of every other engine."""
    others: list[subprocess.Popen] = []
    if flags.engine.endswith(WORKERS):
        count = int(flags.engine.removesuffix(WORKERS))
        if "TF_CONFIG" not in os.environ:
            others = start_other_workers(count)
        share_cores(int(json.loads(os.environ["TF_CONFIG"])["task"]["index"]), count)
    work = make_work(flags)

    def work_together() -> dict:
        for other in others:
            assert other.stdin
            other.stdin.write("go\n")
            other.stdin.flush()
        before = os.times()
        result = work()
        after = os.times()
        if not others:
            return result
        used = after.user + after.system - before.user - before.system
        return {**result, "cpu_seconds": used + sum(answer(other)["done"]["cpu_seconds"] for other in others)}

    for other in others:
        answer(other)  # it is ready
    serve(work_together, {})
    for other in others:
        assert other.stdin
        other.stdin.close()
        other.wait()


def answer(worker: subprocess.Popen) -> dict:
    """Returns the next message of a worker."""
    assert worker.stdout
    return json.loads(worker.stdout.readline())


def start_other_workers(count: int) -> list[subprocess.Popen]:
    """Starts this program as each worker but the first, with the cluster in the environment."""
    ports = []
    for _ in range(count):
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            ports.append(one.getsockname()[1])
    cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
    started = []
    for index in reversed(range(count)):
        os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
        if index:
            command = [sys.executable, "-m", "benchmarks.replicas", *sys.argv[1:]]
            started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    return started


def share_cores(index: int, count: int) -> None:
    """Binds this process to its share of the cores, before TensorFlow counts them."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[index % len(cores) :: count])


def make_work(flags: argparse.Namespace):
    """Returns a function that trains on the first batches of an epoch and returns the loss after the first turn."""
    import keras

    from t2t_keras.config import override
    from t2t_keras.data.batching import EpochPlans, Position
    from t2t_keras.data.pipeline import training_dataset
    from t2t_keras.data.prepare import PreparedData
    from t2t_keras.models import presets
    from t2t_keras.models.families import make_model
    from t2t_keras.training.devices.strategy import distributed, make_strategy
    from t2t_keras.training.devices.workers import Workers
    from t2t_keras.training.step import TrainingStep

    has_workers = flags.engine.endswith(WORKERS)
    strategy = make_strategy("multiworker") if has_workers else make_strategy("cpu", int(flags.engine))
    data = PreparedData.open(flags.data_dir)
    corpus = data.split("train")
    settings = [f"train.tokens_per_batch={flags.tokens_per_batch}", f"model.vocab_size={data.tokenizer.vocab_size}"]
    config = override(presets.preset(flags.preset), settings)
    plans = EpochPlans(corpus.source_lengths, corpus.target_lengths, flags.tokens_per_batch, 1, False)
    keras.utils.set_random_seed(1)
    model = make_model(config.model)
    model.build()
    step = TrainingStep(model, config.train, strategy)
    replicas, mine = strategy.num_replicas_in_sync, Workers(strategy).replica_ids

    # Created once, because starting a pipeline takes up to two seconds, which do not belong to a step. A repeated turn
    # has the same batches as the others.
    dataset = training_dataset(corpus, plans, Position(), replicas, mine).take(flags.steps * len(mine))
    batches = distributed(strategy, dataset.cache().repeat())

    losses: list[float] = []

    def work() -> dict:
        losses.append(float(step.run(batches, flags.steps).loss[-1]))
        return {"loss": losses[0]}  # engines may have had different numbers of turns

    return work


if __name__ == "__main__":
    main()

"""Measures the time from the command to the first update, of launch.train on one or more replicas and of Keras's fit.

    python -m benchmarks.start --data_dir=data/multi30k --preset=tiny

Every start is a new process, and the engines take turns on the same machine. `--other=FOLDER` also starts a different
checkout of this project. A replica is a logical device of the CPU. The time of launch.train ends with its first line of
metrics, and that of a peer after training on its first batch.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import NamedTuple, TextIO

from benchmarks.train_step import sizes_of, write_batches
from benchmarks.transformer_preset import transformer_preset
from benchmarks.turns import last_line, number
from t2t_keras.values import PositiveInt

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PEERS = ("keras_layers", "keras_hub")
_SECONDS_BETWEEN_LOOKS = 0.02
_LONGEST = 1800  # seconds, after which a start counts as hung
# Checks whether a process has ended, and leaves it for `os.wait4`, which returns its processor time.
_ENDED_OR_NOT = os.WEXITED | os.WNOHANG | os.WNOWAIT


class Start(NamedTuple):
    """One start.

    Attributes:
        seconds: time from the command to the first update.
        cpu_seconds: processor time until then.
    """

    seconds: float
    cpu_seconds: float


class Engine(NamedTuple):
    """A program to start.

    Attributes:
        name: name in the table.
        command: the arguments.
        folder: working directory, which is also the first folder for imports.
        metrics: file whose first line ends the measurement; empty for a peer, which reports the end itself.
    """

    name: str
    command: list[str]
    folder: str
    metrics: str


def main() -> None:
    """Starts the engines turn by turn and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_dir", required=True, help="prepared data (launch.prepare_data)")
    parser.add_argument("--preset", default="tiny", help="sizes")
    parser.add_argument("--tokens_per_batch", type=number(), default=4096, help="token budget of the global batch")
    parser.add_argument(
        "--replicas",
        type=number(tuple[PositiveInt, ...]),
        default=(1, 8),
        help="numbers of logical devices, separated by commas",
    )
    parser.add_argument("--other", default="", help="folder of a different checkout")
    parser.add_argument(
        "--peers", default=",".join(PEERS), help="engines of train_step.py, separated by commas; may be empty"
    )
    parser.add_argument("--rounds", type=number(), default=3)
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        engines = [*ours(flags, folder), *peers(flags, folder)]
        starts: dict[str, list[Start]] = {engine.name: [] for engine in engines}
        for round_number in range(flags.rounds):
            for engine in engines:
                with open(os.path.join(folder, "log"), "w+") as log:
                    starts[engine.name].append(start(engine, log))
            print(f"round {round_number + 1} of {flags.rounds} done", file=sys.stderr, flush=True)
    report(starts)


def ours(flags: argparse.Namespace, folder: str) -> Iterator[Engine]:
    """Yields launch.train of this and of the other checkout for each number of replicas."""
    for checkout, words in ((ROOT, ""), (flags.other, ", other checkout")):
        for replicas in flags.replicas if checkout else ():
            model_dir = os.path.join(folder, f"run_{replicas}_{'other' if words else 'this'}")
            settings = {"max_steps": 1000, "log_steps": 1, "steps_per_call": 1, "validation_sentences": 0}
            settings |= {"tokens_per_batch": flags.tokens_per_batch}
            command = [sys.executable, "-m", "launch.train", f"--data_dir={os.path.abspath(flags.data_dir)}"]
            command += [f"--model_dir={model_dir}", f"--preset={flags.preset}", "--strategy=cpu"]
            command += [f"--replicas={replicas}", *(f"--set=train.{key}={value}" for key, value in settings.items())]
            name = f"launch.train, {replicas} replica{'s' * (replicas != 1)}{words}"
            yield Engine(name, command, os.path.abspath(checkout), os.path.join(model_dir, "metrics.jsonl"))


def peers(flags: argparse.Namespace, folder: str) -> Iterator[Engine]:
    """Yields the same network in other libraries, with one training batch."""
    if not flags.peers:
        return
    batches, sizes = os.path.join(folder, "batches.npz"), os.path.join(folder, "sizes.json")
    vocab_size = write_batches(flags.data_dir, "planned", flags.tokens_per_batch, 1, batches).vocab_size
    model = transformer_preset(flags.preset)
    with open(sizes, "w") as file:
        json.dump(sizes_of(model, vocab_size, model.dropout_rate), file)
    command = [sys.executable, "-m", "benchmarks.train_step_engines"]
    for name in filter(None, flags.peers.split(",")):
        yield Engine(f"{name}, fit", [*command, name, batches, sizes], ROOT, "")


def start(engine: Engine, log: TextIO) -> Start:
    """Starts an engine and ends it after its first update.

    Raises:
        SystemExit: it ended earlier; has the last line of its output.
    """
    environment = {**os.environ, "PYTHONPATH": engine.folder, "TF_CPP_MIN_LOG_LEVEL": "3"}
    if engine.metrics and os.path.exists(engine.metrics):
        shutil.rmtree(os.path.dirname(engine.metrics))
    started = time.perf_counter()
    process = subprocess.Popen(
        engine.command,
        cwd=engine.folder,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=log if engine.metrics else subprocess.PIPE,
        stderr=log,
        text=True,
    )
    is_over = wait_for_metrics(process, engine.metrics, started) if engine.metrics else train_once(process)
    seconds = time.perf_counter() - started
    process.kill()
    _, _, usage = os.wait4(process.pid, 0)
    if not is_over:
        log.seek(0)
        sys.exit(f"{engine.name}: {last_line(log.read())}")
    return Start(seconds, usage.ru_utime + usage.ru_stime)


def wait_for_metrics(process: subprocess.Popen, path: str, started: float) -> bool:
    """Waits until a run has written its first line of metrics; returns False if it ends before."""
    while time.perf_counter() - started < _LONGEST and os.waitid(os.P_PID, process.pid, _ENDED_OR_NOT) is None:
        if os.path.exists(path) and os.path.getsize(path):
            return True
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    return False


def train_once(process: subprocess.Popen) -> bool:
    """Waits until a peer has trained on its batch; returns False if it ends before."""
    assert process.stdout
    return any(line.startswith('{"ready"') for line in process.stdout)


def report(starts: dict[str, list[Start]]) -> None:
    """Prints the table of medians and ranges."""
    first = statistics.median(start.seconds for start in next(iter(starts.values())))
    print("| started | seconds to the first update | of the first row | CPU seconds |")
    print("|---|---|---|---|")
    for name, turns in starts.items():
        seconds = [turn.seconds for turn in turns]
        median = statistics.median(seconds)
        print(
            f"| {name} | {median:.1f} ({min(seconds):.1f} to {max(seconds):.1f}) | {median / first:.2f} "
            f"| {statistics.median(turn.cpu_seconds for turn in turns):.1f} |"
        )


if __name__ == "__main__":
    main()

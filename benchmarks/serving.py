"""Measures launch.serve under load or under faults, on the loopback interface.

    python -m benchmarks.serving --export_dir=saved_models/mine --text=test.en
    python -m benchmarks.serving --export_dir=saved_models/mine --text=test.en --faults

wrk generates the load. Each client has one connection, over which it sends a sentence, waits for the translation,
compares it with the server's answer to a single request, and sends the next sentence. Servers of both engines take
turns with a TensorFlow server without batching, and with CTranslate2 without a server, from text to text: all sentences
in its own batches, or one after another in turn with a single client.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence

from benchmarks.serving_faults import print_faults
from benchmarks.serving_process import Served, post
from benchmarks.turns import Worker, busy_seconds, number
from t2t_keras.machine.processor import processor
from t2t_keras.values import PositiveInt

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_LUA = os.path.join(_ROOT, "benchmarks", "serving.lua")
_WARM_UP_SECONDS = 3
_SERVERS = {
    "tensorflow": (),
    "tensorflow, one by one": ("--max_batch_size=1",),
    "ctranslate2": ("--engine=ctranslate2", "--compute_type={compute_type}"),
}


@dataclasses.dataclass(frozen=True)
class Turn:
    """The results of the clients in one turn.

    Attributes:
        seconds: duration.
        right: number of correct answers.
        wrong: number of other answers.
        broken: number of failed connections.
        p50: median latency in milliseconds.
        p95: latency of the 95th percentile.
        p99: latency of the 99th percentile.
        foreign: share of the machine's processor time that other processes used.
    """

    seconds: float
    right: int
    wrong: int
    broken: int
    p50: float
    p95: float
    p99: float
    foreign: float


def write_requests(server: Served, sentences: Sequence[str], path: str) -> None:
    """Writes the body of each request and its expected answer, that of a single request, for serving.lua."""
    lines = []
    for sentence in sentences:
        body = json.dumps({"inputs": {"text": [sentence]}})
        status, answer = post(server.rest, body.encode())
        if status != 200:
            raise RuntimeError(f"{sentence!r} is refused: {answer}")
        # With quotes, as the server writes it, so that a longer translation with the same beginning differs.
        lines += [body, json.dumps(answer["outputs"]["translation"][0], ensure_ascii=False)]
    with open(path, "w", encoding="utf-8") as file:
        file.write("".join(f"{line}\n" for line in lines))


def take_turn(server: Served, clients: int, seconds: int, requests_path: str) -> Turn:
    """Runs a number of concurrent clients for one turn."""
    busy, used = busy_seconds(), server.cpu_seconds
    children = sum(os.times()[2:4])
    command = ["wrk", f"--threads={clients}", f"--connections={clients}", f"--duration={seconds}s", "--timeout=60s"]
    url = f"http://{server.rest}/v1/models/model:predict"
    done = subprocess.run([*command, "-s", _LUA, url, "--", requests_path], capture_output=True, text=True)
    results = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not results:
        raise RuntimeError(f"wrk failed: {done.stdout} {done.stderr}")
    numbers = json.loads(results[0].removeprefix("RESULT "))
    ours = server.cpu_seconds - used + sum(os.times()[2:4]) - children
    foreign = (busy_seconds() - busy - ours) / numbers["seconds"] / os.cpu_count()
    return Turn(**numbers, foreign=max(foreign, 0.0))


class Contestant:
    """A server, and requests with its answers to each single request.

    Args:
        name: name in the table.
        export_dir: directory of the model.
        sentences: the text.
        folder: folder for files.
        flags: flags of the server.
    """

    def __init__(self, name: str, export_dir: str, sentences: Sequence[str], folder: str, *flags: str) -> None:
        self.name = name
        self.served = Served(export_dir, os.path.join(folder, f"{name}.log"), *flags)
        self._requests_path = os.path.join(folder, f"{name}.txt")
        try:
            write_requests(self.served, sentences, self._requests_path)
        except BaseException:
            self.served.stop()
            raise

    def turn(self, clients: int, seconds: int) -> Turn:
        """See `take_turn`."""
        return take_turn(self.served, clients, seconds, self._requests_path)


class Peer:
    """CTranslate2 without a server, in batches and one by one, with the search settings of the export.

    Args:
        export_dir: directory of the model, which is converted.
        text_path: a file of sentences.
        compute_type: number format of the products.
        seconds: duration of a turn.
        folder: folder for files.
    """

    def __init__(self, export_dir: str, text_path: str, compute_type: str, seconds: int, folder: str) -> None:
        model = os.path.join(folder, "converted")
        convert = ["-m", "launch.convert", "--to=ctranslate2", f"--model_dir={os.path.abspath(export_dir)}"]
        command = [sys.executable, *convert, f"--output={model}"]
        subprocess.run(command, cwd=_ROOT, check=True, stdout=subprocess.DEVNULL)  # the process prints the error
        newest = max((name for name in os.listdir(export_dir) if name.isdecimal()), key=int)
        with open(os.path.join(export_dir, newest, "assets.extra", "config.json"), encoding="utf-8") as file:
            decode = json.load(file)["decode"]
        search = [str(decode[name]) for name in ("beam_size", "length_penalty")]
        self._workers = {}
        for role in ("alone", "batches"):
            command = [sys.executable, "-m", "benchmarks.serving_direct"]
            command += [role, model, text_path, compute_type, *search, str(seconds)]
            self._workers[role] = Worker(role, command, os.path.join(folder, f"{role}.log"))
            if failure := self._workers[role].failure:
                raise RuntimeError(f"CTranslate2 by itself does not run: {failure}")

    def turn(self, clients: int) -> dict[str, float]:
        """Runs a turn: sentences one by one for a single client, otherwise in batches."""
        worker = self._workers["alone" if clients == 1 else "batches"]
        worker.forget_turns()
        worker.turn(tries=1)  # as in the servers
        return worker.turns[-1]

    def close(self) -> None:
        """Stops both processes."""
        for worker in self._workers.values():
            worker.close()


@dataclasses.dataclass(frozen=True)
class Load:
    """The results for a number of clients.

    Attributes:
        turns: turns of each server, by name.
        peer: turns of CTranslate2 without a server, with "per_second" and "p50".
    """

    turns: Mapping[str, list[Turn]]
    peer: list[Mapping[str, float]]


def measure(contestants: Sequence[Contestant], peer: Peer, clients: int, rounds: int, seconds: int) -> Load:
    """Runs a short warm-up turn and then `rounds` turns of each server, in turn."""
    for contestant in contestants:
        contestant.turn(clients, _WARM_UP_SECONDS)
    peer.turn(clients)
    load = Load({contestant.name: [] for contestant in contestants}, [])
    for _ in range(rounds):
        for contestant in contestants:
            load.turns[contestant.name].append(contestant.turn(clients, seconds))
        load.peer.append(peer.turn(clients))
    return load


def spread(values: Sequence[float], digits: int = 0) -> str:
    """Formats a median and the range in brackets."""
    low, middle, high = (f"{value:,.{digits}f}" for value in (min(values), statistics.median(values), max(values)))
    return middle if low == high else f"{middle} ({low} to {high})"


def print_load(results: Mapping[int, Load]) -> None:
    """Prints medians and ranges for each number of clients, with ratios to CTranslate2 in the same round."""
    head = "sentences/s | of CTranslate2 | p50, ms | times CTranslate2 | p99, ms | wrong | broken"
    print(f"| clients | server | {head} |")
    print("|---|---|---|---|---|---|---|---|---|")
    for clients, load in results.items():
        peer = {key: [turn[key] for turn in load.peer] for key in ("per_second", "p50")}
        for name, turns in load.turns.items():
            rates, p50 = [turn.right / turn.seconds for turn in turns], [turn.p50 for turn in turns]
            times = spread([ours / theirs for ours, theirs in zip(p50, peer["p50"], strict=True)], 2)
            cells = (
                spread(rates),
                spread([ours / theirs for ours, theirs in zip(rates, peer["per_second"], strict=True)], 2),
                spread(p50, 1),
                times if clients == 1 else "",
                f"{statistics.median(turn.p99 for turn in turns):,.0f}",
                *(str(sum(getattr(turn, part) for turn in turns)) for part in ("wrong", "broken")),
            )
            print(f"| {clients} | {name} | {' | '.join(cells)} |")
        call = spread(peer["p50"], 1) if clients == 1 else ""
        print(f"| {clients} | CTranslate2 by itself | {spread(peer['per_second'])} | | {call} | | | | |")
    foreign = [turn.foreign for load in results.values() for turns in load.turns.values() for turn in turns]
    print(f"\nother processes used {100 * statistics.median(foreign):.0f} % of the machine (median of the turns)")


def main() -> None:
    """Starts the servers, measures them and prints the table."""
    flags = parser().parse_args()
    with open(flags.text, encoding="utf-8") as file:
        sentences = [line.strip() for line in file if line.strip()][: flags.sentences]
    with tempfile.TemporaryDirectory() as folder:
        if flags.faults:
            print_faults(flags.export_dir, sentences, folder)
            return
        if not shutil.which("wrk"):
            raise SystemExit("wrk is needed: apt-get install wrk")
        text_path = os.path.join(folder, "text.txt")
        with open(text_path, "w", encoding="utf-8") as file:
            file.write("".join(f"{sentence}\n" for sentence in sentences))
        results = {}
        with contextlib.ExitStack() as stack:
            peer = Peer(flags.export_dir, text_path, flags.compute_type, flags.seconds, folder)
            stack.callback(peer.close)
            contestants = []
            for name, templates in _SERVERS.items():
                own_flags = [flag.format(compute_type=flags.compute_type) for flag in templates]
                contestants.append(Contestant(name, flags.export_dir, sentences, folder, *own_flags))
                stack.enter_context(contestants[-1].served)
            for clients in flags.clients:
                results[clients] = measure(contestants, peer, clients, flags.rounds, flags.seconds)
                print(f"{clients} clients done", file=sys.stderr, flush=True)
        print(f"{processor()}\n")
        print_load(results)
    if flags.output:
        numbers = {clients: dataclasses.asdict(load) for clients, load in results.items()}
        with open(flags.output, "w") as file:
            json.dump({"processor": processor(), "flags": vars(flags), "results": numbers}, file, indent=1)


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the flags."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--export_dir", required=True, help="directory of an exported model")
    flags.add_argument("--text", required=True, help="a file with one source sentence per line")
    flags.add_argument("--sentences", type=number(), default=500, help="number of sentences")
    flags.add_argument(
        "--clients",
        type=number(tuple[PositiveInt, ...]),
        default=[1, 8, 64],
        help="numbers of concurrent clients, separated by commas",
    )
    flags.add_argument("--compute_type", default="float32", help="number format of CTranslate2: float32 or int8")
    flags.add_argument("--rounds", type=number(), default=3, help="number of turns of each server")
    flags.add_argument("--seconds", type=number(), default=10, help="duration of a turn")
    flags.add_argument("--faults", action="store_true", help="test faulty requests and versions instead")
    flags.add_argument("--output", help="JSON file for the numbers")
    return flags


if __name__ == "__main__":
    main()

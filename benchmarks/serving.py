"""The server under load and under faults: launch.serve with an export, on loopback.

    python -m benchmarks.serving --export_dir=saved_models/mine --text=test.en
    python -m benchmarks.serving --export_dir=saved_models/mine --text=test.en --faults

The load is wrk's: so many clients, each with one connection, that post a sentence, wait for its
translation, look whether it is the one that the server gave when it was asked alone, and post the
next. Two servers take turns: one that merges requests into batches, one that does not.
"""

import argparse
import dataclasses
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from benchmarks.serving_faults import print_faults
from benchmarks.serving_process import Served, post
from benchmarks.turns import busy_seconds

_LUA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "serving.lua")
_WARM_UP_SECONDS = 3


@dataclasses.dataclass(frozen=True)
class Turn:
    """What clients saw in one turn.

    Attributes:
        seconds: how long it took.
        right: answers that were what they must be.
        wrong: other answers.
        broken: connections that failed.
        p50: half of the requests took no more milliseconds.
        p95: as p50, of 95 %.
        p99: as p50, of 99 %.
        foreign: share of the machine's processor time that other processes took.
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
    """For serving.lua: each request's body, and what its answer must hold: what it held when it was sent alone."""
    lines = []
    for sentence in sentences:
        body = json.dumps({"inputs": {"text": [sentence]}})
        status, answer = post(server.rest, body.encode())
        if status != 200:
            raise RuntimeError(f"{sentence!r} is refused: {answer}")
        # As the server writes it, with its quotes, so that a longer translation that begins like it is another.
        lines += [body, json.dumps(answer["outputs"]["translation"][0], ensure_ascii=False)]
    with open(path, "w", encoding="utf-8") as file:
        file.write("".join(f"{line}\n" for line in lines))


def take_turn(server: Served, clients: int, seconds: int, requests_path: str) -> Turn:
    """So many clients at once."""
    busy, own = busy_seconds(), server.cpu_seconds
    children = sum(os.times()[2:4])
    command = ["wrk", f"--threads={clients}", f"--connections={clients}", f"--duration={seconds}s", "--timeout=60s"]
    url = f"http://{server.rest}/v1/models/model:predict"
    done = subprocess.run([*command, "-s", _LUA, url, "--", requests_path], capture_output=True, text=True)
    results = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not results:
        raise RuntimeError(f"wrk failed: {done.stdout} {done.stderr}")
    numbers = json.loads(results[0].removeprefix("RESULT "))
    ours = server.cpu_seconds - own + sum(os.times()[2:4]) - children
    foreign = (busy_seconds() - busy - ours) / numbers["seconds"] / os.cpu_count()
    return Turn(**numbers, foreign=max(foreign, 0.0))


def measure(
    servers: Mapping[str, Served], clients: int, rounds: int, seconds: int, requests_path: str
) -> dict[str, list[Turn]]:
    """A short turn each that does not count, then `rounds` each, one server after the other."""
    for server in servers.values():
        take_turn(server, clients, _WARM_UP_SECONDS, requests_path)
    turns: dict[str, list[Turn]] = {name: [] for name in servers}
    for _ in range(rounds):
        for name, server in servers.items():
            turns[name].append(take_turn(server, clients, seconds, requests_path))
    return turns


def median(turns: Sequence[Turn], name: str) -> float:
    """Of a number of the turns."""
    return statistics.median(getattr(turn, name) for turn in turns)


def throughput(turns: Sequence[Turn]) -> float:
    """Sentences a second, the median of the turns."""
    return statistics.median(turn.right / turn.seconds for turn in turns)


def print_load(results: Mapping[int, Mapping[str, Sequence[Turn]]]) -> None:
    """The table of all numbers of clients, and how much batches give."""
    print("| clients | requests | sentences/s | p50, ms | p95, ms | p99, ms | wrong | broken | other processes |")
    print("|---|---|---|---|---|---|---|---|---|")
    for clients, servers in results.items():
        for name, turns in servers.items():
            latencies = " | ".join(f"{median(turns, part):.0f}" for part in ("p50", "p95", "p99"))
            failures = " | ".join(str(sum(getattr(turn, part) for turn in turns)) for part in ("wrong", "broken"))
            foreign = f"{100 * median(turns, 'foreign'):.0f} %"
            print(f"| {clients} | {name} | {throughput(turns):.0f} | {latencies} | {failures} | {foreign} |")
    print()
    for clients, servers in results.items():
        ratio = throughput(servers["merged"]) / throughput(servers["one by one"])
        print(f"{clients} clients: {ratio:.2f} times as many sentences with batches as without")


def main() -> None:
    """Starts the servers, measures, prints."""
    flags = parser().parse_args()
    with open(flags.text, encoding="utf-8") as file:
        sentences = [line.strip() for line in file if line.strip()][: flags.sentences]
    with tempfile.TemporaryDirectory() as folder:
        if flags.faults:
            print_faults(flags.export_dir, sentences, folder)
            return
        if not shutil.which("wrk"):
            raise SystemExit("wrk is needed: apt-get install wrk")
        log = os.path.join(folder, "{}.log")
        merged = Served(flags.export_dir, log.format("merged"))
        alone = Served(flags.export_dir, log.format("alone"), "--max_batch_size=1")
        with merged, alone:
            requests_path = os.path.join(folder, "requests.txt")
            write_requests(alone, sentences, requests_path)
            servers = {"merged": merged, "one by one": alone}
            results = {}
            for clients in flags.clients:
                results[clients] = measure(servers, clients, flags.rounds, flags.seconds, requests_path)
                print(f"{clients} clients done", file=sys.stderr, flush=True)
            print_load(results)
    if flags.output:
        numbers = {
            clients: {name: [dataclasses.asdict(turn) for turn in turns] for name, turns in found.items()}
            for clients, found in results.items()
        }
        with open(flags.output, "w") as file:
            json.dump({"flags": vars(flags), "results": numbers}, file, indent=1)


def parser() -> argparse.ArgumentParser:
    """The flags."""

    def at_least_one(text: str) -> int:
        if int(text) < 1:
            raise argparse.ArgumentTypeError(f"must be positive, got {text}")
        return int(text)

    def numbers(text: str) -> list[int]:
        return [at_least_one(number) for number in text.split(",")]

    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--export_dir", required=True, help="a model's directory, as launch.export writes it")
    flags.add_argument("--text", required=True, help="a file with a source sentence a line")
    flags.add_argument("--sentences", type=at_least_one, default=500, help="how many of them")
    flags.add_argument("--clients", type=numbers, default=[1, 8, 64], help="at once, by commas")
    flags.add_argument("--rounds", type=at_least_one, default=3, help="turns of each server")
    flags.add_argument("--seconds", type=at_least_one, default=10, help="of a turn")
    flags.add_argument("--faults", action="store_true", help="what comes of faulty requests and versions, instead")
    flags.add_argument("--output", help="also write the numbers to this JSON file")
    return flags


if __name__ == "__main__":
    main()

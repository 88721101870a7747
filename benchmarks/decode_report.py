"""The numbers of `decode.py` and how they are shown."""

import dataclasses
import statistics
from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.turns import Worker

_SAME_LOG_PROB = 1e-3


@dataclasses.dataclass(frozen=True)
class Numbers:
    """What an engine did.

    Attributes:
        seconds: for all sentences in batches, the median of its turns.
        latencies: seconds of every sentence that was translated on its own, in all turns.
        peak_gib: the process's largest resident memory.
        outputs: ids of every output.
        quiet_turns: how many turns count; 0 means that other processes disturbed all of them.
    """

    seconds: float
    latencies: list[float]
    peak_gib: float
    outputs: list[list[int]]
    quiet_turns: int

    @classmethod
    def of(cls, worker: Worker) -> "Numbers":
        """The numbers of a worker that has had its turns."""
        turns = worker.turns or worker.noisy_turns
        latencies = [seconds for turn in turns for seconds in turn["latencies"]]
        peak = max(turn["peak_gib"] for turn in turns)
        return cls(worker.median("seconds"), latencies, peak, turns[-1]["outputs"], len(worker.turns))

    def latency(self, percent: float) -> float:
        """Of a sentence alone, the percentile in milliseconds."""
        return float(1e3 * np.percentile(self.latencies, percent))

    @property
    def tokens(self) -> int:
        """Of all outputs, end symbols not counted."""
        return sum(map(len, self.outputs))


def print_table(numbers: Mapping[str, Sequence[Numbers]]) -> None:
    """A row an engine, of its runs; ratios are of sentences a second, which all engines mean the same by."""
    own = numbers.get("ours")
    print("| engine | tokens/s | sentences/s | ours / it | p50 ms | p95 ms | peak GiB | same outputs | quiet turns |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, runs in numbers.items():
        pairs = list(zip(runs, own or [], strict=bool(own)))
        cells = [
            _range([found.tokens / found.seconds for found in runs], ",.0f"),
            _range([len(found.outputs) / found.seconds for found in runs], ",.1f"),
            _range([found.seconds / ours.seconds for found, ours in pairs], ".2f"),
            _range([found.latency(50) for found in runs], ".1f"),
            _range([found.latency(95) for found in runs], ".1f"),
            f"{max(found.peak_gib for found in runs):.2f}",
            _range([same_outputs(found, ours) for found, ours in pairs], ".1%"),
            str(sum(found.quiet_turns for found in runs)),
        ]
        print(f"| {name} | {' | '.join(cells)} |")


def alone(numbers: Mapping[str, Sequence[Numbers]]) -> list[str]:
    """One sentence at a time, in float32 and in 8 bits: our fastest engine beside CTranslate2's fastest.

    Each as it is fastest, by its best median, with one worker or with several; the ranges say how much runs differ.
    """
    lines = []
    for arithmetic, is_of in (("float32", lambda name: "int8" not in name), ("8 bits", lambda name: "int8" in name)):
        fastest = []
        for family in ("ours", "ctranslate2"):
            names = [name for name in numbers if name.startswith(family) and is_of(name) and "bfloat16" not in name]
            fastest += sorted(names, key=lambda name: min(found.latency(50) for found in numbers[name]))[:1]
        if len(fastest) == 2:
            ours, theirs = ([found.latency(50) for found in numbers[name]] for name in fastest)
            ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
            lines.append(
                f"one sentence alone, {arithmetic}, p50: {fastest[0]} {_range(ours, '.1f')} ms, "
                f"{fastest[1]} {_range(theirs, '.1f')} ms, the first over the second {_range(ratios, '.2f')}"
            )
    return lines


def _range(values: Sequence[float], form: str) -> str:
    """The smallest and the largest, or one of them where both read the same; nothing of no values."""
    ends = dict.fromkeys(f"{end(values):{form}}" for end in (min, max)) if values else {}
    return " to ".join(ends)


def same_outputs(left: Numbers, right: Numbers) -> float:
    """The share of sentences with identical outputs."""
    return statistics.fmean(a == b for a, b in zip(left.outputs, right.outputs, strict=True))


def agreement(name: str, ours: np.ndarray, theirs: np.ndarray) -> str:
    """Which of different outputs for the same sentences are likelier.

    Args:
        name: of the other engine.
        ours: [sentences], the log-probabilities of our outputs.
        theirs: [sentences], those of the other engine's, by the same model.
    """
    higher, lower = (ours > theirs + _SAME_LOG_PROB).sum(), (ours < theirs - _SAME_LOG_PROB).sum()
    return (
        f"{name}: {len(ours)} outputs differ from ours, which are likelier in {higher}, less likely in {lower} "
        f"and equally likely in {len(ours) - higher - lower}"
    )

"""The numbers of `decode.py`, and their tables."""

import dataclasses
import statistics
from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.turns import Worker

_SAME_LOG_PROB = 1e-3


@dataclasses.dataclass(frozen=True)
class Numbers:
    """The numbers of an engine.

    Attributes:
        seconds: median time of a turn for all sentences in batches.
        latencies: seconds of the sentences that were translated one by one, in all turns.
        peak_gib: peak resident memory of the process.
        outputs: ids of every output.
        quiet_turns: number of turns without other load; if it is 0, the disturbed turns count.
    """

    seconds: float
    latencies: list[float]
    peak_gib: float
    outputs: list[list[int]]
    quiet_turns: int

    @classmethod
    def of(cls, worker: Worker) -> "Numbers":
        """Returns the numbers of a worker after its turns."""
        turns = worker.turns
        latencies = [seconds for turn in turns for seconds in turn["latencies"]]
        peak = max(turn["peak_gib"] for turn in turns)
        return cls(worker.median("seconds"), latencies, peak, turns[-1]["outputs"], len(worker.quiet_turns))

    def latency(self, percent: float) -> float:
        """Returns a percentile of the latencies, in milliseconds."""
        return float(1e3 * np.percentile(self.latencies, percent))

    @property
    def tokens(self) -> int:
        """The number of tokens in all outputs, without end symbols."""
        return sum(map(len, self.outputs))


def print_table(numbers: Mapping[str, Sequence[Numbers]]) -> None:
    """Prints a row for each engine; ratios are those of sentences per second."""
    our_runs = numbers.get("ours")
    print("| engine | tokens/s | sentences/s | ours / it | p50 ms | p95 ms | peak GiB | same outputs | quiet turns |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, runs in numbers.items():
        pairs = list(zip(runs, our_runs or [], strict=bool(our_runs)))
        cells = [
            _range([run.tokens / run.seconds for run in runs], ",.0f"),
            _range([len(run.outputs) / run.seconds for run in runs], ",.1f"),
            _range([run.seconds / ours.seconds for run, ours in pairs], ".2f"),
            _range([run.latency(50) for run in runs], ".1f"),
            _range([run.latency(95) for run in runs], ".1f"),
            f"{max(run.peak_gib for run in runs):.2f}",
            _range([same_outputs(run, ours) for run, ours in pairs], ".1%"),
            str(sum(run.quiet_turns for run in runs)),
        ]
        print(f"| {name} | {' | '.join(cells)} |")


def compare_latencies(numbers: Mapping[str, Sequence[Numbers]]) -> list[str]:
    """Compares the latencies of our fastest engine and of CTranslate2's, in float32 and in 8 bits, as lines of text.

    The fastest engine has the lowest median of any run. The ranges are over all runs.
    """
    lines = []
    for arithmetic, is_of in (("float32", lambda name: "int8" not in name), ("8 bits", lambda name: "int8" in name)):
        fastest = []
        for family in ("ours", "ctranslate2"):
            names = [name for name in numbers if name.startswith(family) and is_of(name) and "bfloat16" not in name]
            fastest += sorted(names, key=lambda name: min(run.latency(50) for run in numbers[name]))[:1]
        if len(fastest) == 2:
            ours, theirs = ([run.latency(50) for run in numbers[name]] for name in fastest)
            ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
            lines.append(
                f"one sentence alone, {arithmetic}, p50: {fastest[0]} {_range(ours, '.1f')} ms, "
                f"{fastest[1]} {_range(theirs, '.1f')} ms, the first over the second {_range(ratios, '.2f')}"
            )
    return lines


def _range(values: Sequence[float], form: str) -> str:
    """Formats a range, or a single number if both ends read the same; "" without values."""
    ends = dict.fromkeys(f"{end(values):{form}}" for end in (min, max)) if values else {}
    return " to ".join(ends)


def same_outputs(left: Numbers, right: Numbers) -> float:
    """Returns the share of sentences with identical outputs."""
    return statistics.fmean(a == b for a, b in zip(left.outputs, right.outputs, strict=True))


def agreement(name: str, ours: np.ndarray, theirs: np.ndarray) -> str:
    """Describes how often each of two engines has the more likely output.

    Args:
        name: name of the other engine.
        ours: log-probabilities of our outputs, [sentences].
        theirs: log-probabilities of the outputs of the other engine by the same model, [sentences].
    """
    higher, lower = (ours > theirs + _SAME_LOG_PROB).sum(), (ours < theirs - _SAME_LOG_PROB).sum()
    return (
        f"{name}: {len(ours)} outputs differ from ours, which are more likely in {higher} cases, less likely in "
        f"{lower} and equally likely in {len(ours) - higher - lower}"
    )

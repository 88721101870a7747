"""The numbers of `decode.py` and how they are shown."""

import dataclasses
import statistics
from collections.abc import Mapping

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

    @property
    def tokens(self) -> int:
        """Of all outputs, end symbols not counted."""
        return sum(map(len, self.outputs))


def print_table(numbers: Mapping[str, Numbers]) -> None:
    """A row an engine; ratios are of sentences a second, which all engines mean the same by."""
    own = numbers.get("ours")
    print("| engine | tokens/s | sentences/s | ours / it | p50 ms | p95 ms | peak GiB | same outputs | quiet turns |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, found in numbers.items():
        p50, p95 = (1e3 * np.percentile(found.latencies, percent) for percent in (50, 95))
        ratio = f"{found.seconds / own.seconds:.2f}" if own else ""
        same = f"{same_outputs(found, own):.1%}" if own else ""
        print(
            f"| {name} | {found.tokens / found.seconds:,.0f} | {len(found.outputs) / found.seconds:,.1f} | {ratio} "
            f"| {p50:.1f} | {p95:.1f} | {found.peak_gib:.2f} | {same} | {found.quiet_turns} |"
        )


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

"""A score of a corpus, whatever the task."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from t2t_keras.errors import InputError


@dataclasses.dataclass(frozen=True)
class Score:
    """One score of a corpus.

    Attributes:
        name: name of the measure.
        value: 0 to 100 (TER can exceed it).
        signature: sacreBLEU's, preceded by the processing before it; of other scores, what computes them.
        comparable_to: whose scores it may be compared with.
    """

    name: str
    value: float
    signature: str
    comparable_to: str


def check_lines(lines: Sequence[Any], references: Sequence[str]) -> None:
    """Raises an `InputError` if there is nothing to score, or not as many references."""
    if not lines:
        raise InputError("there is nothing to evaluate: the text has no lines")
    if len(lines) != len(references):
        raise InputError(f"unequal numbers of lines: {len(lines)} to evaluate, {len(references)} references")

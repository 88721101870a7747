"""Scores of a corpus, for all tasks."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from t2t_keras.errors import InputError


@dataclasses.dataclass(frozen=True)
class Score:
    """One score of a corpus.

    Attributes:
        name: name of the measure.
        value: value from 0 to 100; TER may be larger.
        signature: for sacreBLEU's scores, its signature after that of the preprocessing; for other scores, the method.
        comparable_to: description of the scores that it may be compared with.
    """

    name: str
    value: float
    signature: str
    comparable_to: str


def check_lines(lines: Sequence[Any], references: Sequence[str]) -> None:
    """Raises an `InputError` if there are no lines to score, or if the number of references differs."""
    if not lines:
        raise InputError("the text to evaluate has no lines")
    if len(lines) != len(references):
        raise InputError(f"unequal numbers of lines: {len(lines)} to evaluate, {len(references)} references")

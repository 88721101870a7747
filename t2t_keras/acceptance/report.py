"""The report of the acceptance checks: a Markdown table with machine, versions and date."""

import contextlib
import dataclasses
import datetime
import os
import platform
from collections.abc import Sequence
from importlib import metadata
from typing import Literal

from t2t_keras.machine.processor import processor

_PACKAGES = ("tensorflow", "tensorflow-tpu", "keras", "jax")
_MAX_CHARACTERS = 400  # in a cell, because the error of a library can have many lines


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of one check.

    Attributes:
        check: name of the check, as in `--checks`.
        outcome: "passed", "failed", "measured" (a figure without a limit) or "not run".
        text: the figures, or the reason of a failure.
    """

    check: str
    outcome: Literal["passed", "failed", "measured", "not run"]
    text: str


def judged(check: str, is_passed: bool, text: str) -> Result:
    """Returns the result of a check that either passes or fails."""
    return Result(check, "passed" if is_passed else "failed", text)


def report(results: Sequence[Result], gpus: Sequence[str]) -> str:
    """Returns the results as a Markdown table, whose rows can be copied to a table of other machines.

    Args:
        results: results of the checks.
        gpus: names of the GPUs.
    """
    machine = ", ".join([processor(), *(f"{gpus.count(name)} x {name}" for name in dict.fromkeys(gpus))])
    about = [machine, _versions(), datetime.date.today().isoformat()]
    rows = [["check", "outcome", "figures", "machine", "versions", "date"], ["---"] * 6]
    rows += [[each.check, each.outcome, each.text, *about] for each in results]
    return "\n".join(f"| {' | '.join(map(_cell, row))} |" for row in rows)


def _versions() -> str:
    versions = []
    for name in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions.append(f"{name} {metadata.version(name)}")
    return ", ".join([*versions, f"Python {platform.python_version()}", f"{platform.system()} {os.uname().release}"])


def _cell(text: str) -> str:
    line = " ".join(text.split()).replace("|", "\\|")
    return line if len(line) <= _MAX_CHARACTERS else f"{line[:_MAX_CHARACTERS]}..."

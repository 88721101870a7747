"""Fake versions of the programs of a cluster, and runs of the recipes with them."""

import os
import pathlib
import re
import subprocess
from typing import Any

ROOT = pathlib.Path(__file__).parents[3]
CLUSTER = ROOT / "launch" / "cluster"
# Exit statuses: invalid input; lost connection to a bucket or a worker; saved and stopped by SIGTERM; killed.
MISTAKE, AWAY, LOST, STOPPED, KILLED = 1, 69, 75, 143, 137


def write_executable(path: pathlib.Path, text: str) -> pathlib.Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/usr/bin/env bash\n{text}", encoding="utf-8")
    path.chmod(0o755)
    return path


def environment(folder: pathlib.Path, **settings: object) -> dict[str, str]:
    """The environment for a recipe, in which the fake programs of a folder precede all others."""
    script_settings = re.compile(r"SLURM_.*|DRY_RUN|(KERAS_)?BACKEND|TENSORFLOW|PYTHON")  # make sets the last two
    plain = {name: value for name, value in os.environ.items() if not script_settings.fullmatch(name)}
    return {**plain, "PATH": f"{folder}:{plain['PATH']}", **{name: str(value) for name, value in settings.items()}}


def run(script: str, *arguments: str, **settings: Any) -> subprocess.CompletedProcess:
    return subprocess.run(
        ["bash", str(CLUSTER / script), *arguments], capture_output=True, text=True, timeout=300, **settings
    )


def lines(path: pathlib.Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

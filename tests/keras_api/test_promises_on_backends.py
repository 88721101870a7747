"""Runs the tests of this folder on other backends, and compares the table in docs/python.md with what they prove."""

import importlib
import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import keras
import pytest

from tests import programs
from tests.keras_api.promises import BACKENDS, ROWS
from tests.test_documents import table

FOLDER = pathlib.Path(__file__).parent
HEADING = "Keras features and backends"


def test_the_table_lists_what_the_tests_prove() -> None:
    for path in FOLDER.glob("test_*.py"):
        importlib.import_module(f"tests.keras_api.{path.stem}")
    rows = table("python.md", HEADING)
    assert {first: dict(zip(BACKENDS, cells, strict=True)) for first, *cells in rows} == ROWS
    page = (FOLDER.parents[1] / "docs/python.md").read_text(encoding="utf-8")
    (head,) = re.findall(r"^\| Keras \| (.+) \|$", page.partition(f"## {HEADING}")[2], re.MULTILINE)
    assert head.split(" | ") == list(BACKENDS.values())


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_on_another_backend(backend: str) -> None:
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    if keras.backend.backend() == backend:
        pytest.skip(f"{backend} is this backend")
    environment = {**os.environ, **programs.QUICK_COMPILATION, "KERAS_BACKEND": backend, "OMP_NUM_THREADS": "1"}
    options = ["-q", "-x", "-p", "no:cacheprovider", "-m", "slow or not slow", f"--ignore={__file__}"]
    command = [sys.executable, "-m", "pytest", *options, str(FOLDER)]
    done = subprocess.run(command, env=environment, cwd=FOLDER.parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]

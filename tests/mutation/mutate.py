"""Counts how many mutations of some packages the quick tests detect, and prints the others.

For example:
    python -m tests.mutation.mutate serving inference --count=50

Each mutation runs in a fork of this process, which has imported TensorFlow but no module of this project. The fork
imports the package with one changed file, and runs the quick tests that import this file until one fails.
"""

import argparse
import contextlib
import difflib
import functools
import gc
import importlib
import importlib.machinery
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.mutation.mutations import Mutation, mutations

ROOT = Path(__file__).parents[2]
QUICK_TESTS = "not integration and not slow and not faults and not attack"
# Modules that are slow to import, and do not import this project.
PRELOADED = (
    *("tensorflow", "tensorflow_text", "keras", "numpy", "sentencepiece", "sacrebleu", "pytest", "hypothesis"),
    *("httpx", "grpc", "starlette.applications", "uvicorn", "tensorflow_serving.apis.predict_pb2"),
)
OTHER_CATEGORIES = re.compile("^pytestmark = pytest.mark.(integration|slow|faults|attack)$", re.MULTILINE)
MAX_FILES, MAX_SECONDS = 16, 120
NO_TESTS = 5  # an exit status of pytest


def main() -> None:
    arguments = _parse_arguments()
    chosen = _draw_mutations(arguments.packages, arguments.count, arguments.seed)
    _preload()
    tried = killed = 0
    started = time.monotonic()
    with contextlib.suppress(KeyboardInterrupt):
        for path, mutation in chosen[arguments.skip :]:
            files = [test for test in tests_of(path) if _seconds(test)][:MAX_FILES]
            limit = min(MAX_SECONDS, 10 + 3 * int(sum(map(_seconds, files))))
            is_killed = bool(files) and run_tests(files, limit, str(path), mutation.source)[0] != 0
            tried, killed = tried + 1, killed + is_killed
            if not is_killed:
                print(_difference(path, mutation), flush=True)
    rate = killed / max(tried, 1)
    print(f"killed {killed} of {tried} mutations ({rate:.0%}) in {time.monotonic() - started:.0f} s")


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("packages", nargs="+", help="folders or files of t2t_keras, such as serving or data/prepare.py")
    parser.add_argument("--count", type=int, default=50, help="the number of mutations")
    parser.add_argument("--seed", type=int, default=1, help="seed of the random choice")
    parser.add_argument(
        "--skip", type=int, default=0, help="the number of mutations tried by a run that was interrupted"
    )
    return parser.parse_args()


def _draw_mutations(packages: list[str], count: int, seed: int) -> list[tuple[Path, Mutation]]:
    """Draws mutations, ordered by file."""
    folders = [ROOT / "t2t_keras" / name for name in packages]
    paths = [path for folder in folders for path in (sorted(folder.rglob("*.py")) or [folder])]
    candidates = [(path, mutation) for path in paths for mutation in mutations(path.read_text(encoding="utf-8"))]
    numbers = random.Random(seed).sample(range(len(candidates)), min(count, len(candidates)))
    print(f"{len(numbers)} of {len(candidates)} mutations of {len(paths)} files", flush=True)
    return [candidates[number] for number in sorted(numbers)]


def tests_of(path: Path) -> list[str]:
    """The test files for a file of the package: its test file, then tests that import it, then tests of its folder."""
    folder, stem = path.relative_to(ROOT / "t2t_keras").parent, path.stem
    package = re.escape(".".join(("t2t_keras", *folder.parts)))
    imports = re.compile(rf"\b{package}\.{stem}\b|from {package} import (?:[^\n(]*|\([^)]*)\b{stem}\b")
    folder_of_tests = ROOT / "tests" / folder
    ranks = {}
    for test in (ROOT / "tests").rglob("test_*.py"):
        is_test_of_file, is_in_folder = test == folder_of_tests / f"test_{stem}.py", test.parent == folder_of_tests
        text = test.read_text(encoding="utf-8")
        if (is_test_of_file or is_in_folder or imports.search(text)) and not OTHER_CATEGORIES.search(text):
            ranks[test] = (not is_test_of_file, not imports.search(text), not is_in_folder, test)
    return [str(test.relative_to(ROOT)) for test in sorted(ranks, key=lambda test: ranks[test])]


def _preload() -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    for name in PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


@functools.cache
def _seconds(test: str) -> float:
    """The CPU seconds of a test file without mutations, or 0 if it has no quick tests or fails."""
    status, seconds = run_tests([test], MAX_SECONDS)
    if status not in (0, NO_TESTS):
        print(f"{test} fails without a mutation", flush=True)
    return 0.0 if status else seconds


def run_tests(files: list[str], cpu_seconds: int, path: str = "", source: str = "") -> tuple[int, float]:
    """Runs test files in a fork in which one file has a different source; returns the exit status and CPU seconds."""
    # Separate from the folders of other runs of pytest, which delete old folders.
    folder = tempfile.mkdtemp()
    process = os.fork()
    if not process:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
        for stream in range(3):
            os.dup2(os.open(os.devnull, os.O_RDWR), stream)
        _replace_source(path, source.encode())
        pytest = importlib.import_module("pytest")
        options = ["-x", "-q", "-p", "no:cacheprovider", f"--basetemp={folder}/pytest", "-m", QUICK_TESTS]
        os._exit(pytest.main([*options, *files]))
    end = time.monotonic() + 60 + 5 * cpu_seconds  # for tests that wait without using the CPU
    try:
        while not (waited := os.wait4(process, os.WNOHANG))[0] and time.monotonic() < end:
            time.sleep(0.05)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)  # with its child processes
        shutil.rmtree(folder, ignore_errors=True)
    _, status, usage = waited if waited[0] else os.wait4(process, 0)
    return os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime


def _replace_source(path: str, source: bytes) -> None:
    """Replaces the source of a file for imports, without changing the file or its compiled code."""

    class Loader(importlib.machinery.SourceFileLoader):
        def get_data(self, name):
            return source if name == path else super().get_data(name)

        def path_stats(self, name):
            if name == path:
                raise OSError("compiled files are not used")
            return super().path_stats(name)

    extensions = importlib.machinery.ExtensionFileLoader, importlib.machinery.EXTENSION_SUFFIXES
    sources = Loader, importlib.machinery.SOURCE_SUFFIXES
    sys.path_hooks.insert(0, importlib.machinery.FileFinder.path_hook(extensions, sources))
    sys.path_importer_cache.clear()


def _difference(path: Path, mutation: Mutation) -> str:
    """The location of a mutation, and the changed lines."""
    before, after = (text.splitlines() for text in (path.read_text(encoding="utf-8"), mutation.source))
    lines = difflib.unified_diff(before, after, n=0, lineterm="")
    place = f"{path.relative_to(ROOT)}:{mutation.line} ({mutation.kind})"
    return "\n".join([place, *(line for line in list(lines)[2:] if not line.startswith("@@"))])


if __name__ == "__main__":
    main()

"""Tells how many mutations of some packages the quick tests notice, and prints those that they do not.

For example:
    python -m tests.mutation.mutate serving inference --count=50

Each mutation is tried in a fork of this process, which has imported TensorFlow and nothing of this project. The fork
imports the package with one file changed in memory, and runs the quick tests that import this file, until one fails.
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
import signal
import sys
import time
from pathlib import Path

from tests.mutation.mutations import Mutation, mutations

ROOT = Path(__file__).parents[2]
RING = "not integration and not slow and not faults and not attack"
# What tests import that takes long; none of it imports this project.
PRELOADED = (
    *("tensorflow", "tensorflow_text", "keras", "numpy", "sentencepiece", "sacrebleu", "pytest", "hypothesis"),
    *("httpx", "grpc", "starlette.applications", "uvicorn", "tensorflow_serving.apis.predict_pb2"),
)
OTHER_RINGS = re.compile("^pytestmark = pytest.mark.(integration|slow|faults|attack)$", re.MULTILINE)
MOST_FILES, MOST_SECONDS = 16, 120
NO_TESTS = 5  # an exit status of pytest


def main() -> None:
    arguments = _parsed()
    chosen = _sampled(arguments.packages, arguments.count, arguments.seed)
    _preload()
    killed, begun = 0, time.monotonic()
    for path, mutation in chosen:
        files = [test for test in tests_of(path) if _seconds(test)][:MOST_FILES]
        limit = min(MOST_SECONDS, 10 + 3 * int(sum(map(_seconds, files))))
        if files and tried(files, limit, str(path), mutation.source)[0]:
            killed += 1
        else:
            print(_difference(path, mutation), flush=True)
    rate = killed / max(len(chosen), 1)
    print(f"killed {killed} of {len(chosen)} mutations ({rate:.0%}) in {time.monotonic() - begun:.0f} s")


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("packages", nargs="+", help="folders or files of t2t_keras, such as serving or data/prepare.py")
    parser.add_argument("--count", type=int, default=50, help="how many mutations are drawn")
    parser.add_argument("--seed", type=int, default=1, help="of the draw")
    return parser.parse_args()


def _sampled(packages: list[str], count: int, seed: int) -> list[tuple[Path, Mutation]]:
    """Draws mutations, and returns them in the order of their files."""
    folders = [ROOT / "t2t_keras" / name for name in packages]
    paths = [path for folder in folders for path in (sorted(folder.rglob("*.py")) or [folder])]
    found = [(path, mutation) for path in paths for mutation in mutations(path.read_text(encoding="utf-8"))]
    drawn = random.Random(seed).sample(range(len(found)), min(count, len(found)))
    print(f"{len(drawn)} of {len(found)} mutations of {len(paths)} files", flush=True)
    return [found[number] for number in sorted(drawn)]


def tests_of(path: Path) -> list[str]:
    """Returns the test files of a file of the package: its own first, then those that import it, then their folder."""
    folder, stem = path.relative_to(ROOT / "t2t_keras").parent, path.stem
    package = re.escape(".".join(("t2t_keras", *folder.parts)))
    imports = re.compile(rf"\b{package}\.{stem}\b|from {package} import (?:[^\n(]*|\([^)]*)\b{stem}\b")
    own = ROOT / "tests" / folder
    ranks = {}
    for test in (ROOT / "tests").rglob("test_*.py"):
        is_own, is_beside = test == own / f"test_{stem}.py", test.parent == own
        text = test.read_text(encoding="utf-8")
        if (is_own or is_beside or imports.search(text)) and not OTHER_RINGS.search(text):
            ranks[test] = (not is_own, not imports.search(text), not is_beside, test)
    return [str(test.relative_to(ROOT)) for test in sorted(ranks, key=lambda test: ranks[test])]


def _preload() -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    for name in PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


@functools.cache
def _seconds(test: str) -> float:
    """Returns the CPU seconds of a test file without a mutation; 0 if it has no quick test or fails."""
    status, seconds = tried([test], MOST_SECONDS)
    if status not in (0, NO_TESTS):
        print(f"{test} fails without a mutation", flush=True)
    return 0.0 if status else seconds


def tried(files: list[str], cpu_seconds: int, path: str = "", source: str = "") -> tuple[int, float]:
    """Runs test files in a fork in which a file has another source; returns pytest's exit status and CPU seconds."""
    process = os.fork()
    if not process:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
        for stream in range(3):
            os.dup2(os.open(os.devnull, os.O_RDWR), stream)
        _serve(path, source.encode())
        pytest = importlib.import_module("pytest")
        options = ["-x", "-q", "-p", "no:cacheprovider", "-o", "tmp_path_retention_policy=none", "-m", RING]
        os._exit(pytest.main([*options, *files]))
    end = time.monotonic() + 60 + 5 * cpu_seconds  # for one that waits for something and uses no CPU
    while not (done := os.wait4(process, os.WNOHANG))[0] and time.monotonic() < end:
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)  # with all that it has started
    _, status, usage = done if done[0] else os.wait4(process, 0)
    return os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime


def _serve(path: str, source: bytes) -> None:
    """Imports a file with another source; the file, and what Python has compiled of it, stay as they are."""

    class Loader(importlib.machinery.SourceFileLoader):
        def get_data(self, name):
            return source if name == path else super().get_data(name)

        def path_stats(self, name):
            if name == path:
                raise OSError("no compiled file is used")
            return super().path_stats(name)

    extensions = importlib.machinery.ExtensionFileLoader, importlib.machinery.EXTENSION_SUFFIXES
    sources = Loader, importlib.machinery.SOURCE_SUFFIXES
    sys.path_hooks.insert(0, importlib.machinery.FileFinder.path_hook(extensions, sources))
    sys.path_importer_cache.clear()


def _difference(path: Path, mutation: Mutation) -> str:
    """The place of a mutation, and its lines before and after."""
    before, after = (text.splitlines() for text in (path.read_text(encoding="utf-8"), mutation.source))
    lines = difflib.unified_diff(before, after, n=0, lineterm="")
    place = f"{path.relative_to(ROOT)}:{mutation.line} ({mutation.kind})"
    return "\n".join([place, *(line for line in list(lines)[2:] if not line.startswith("@@"))])


if __name__ == "__main__":
    main()

"""Configures all tests: logs, interrupts, garbage collection, memory and categories.

Collecting garbage after imports and during the collection of tests would take a tenth of the time. Garbage collection
is therefore off until the tests are collected, ignores the objects that exist then, and visits old objects less often.

Tests run graphs without optimization, which would take a fifth of the time, and training does not draw curves. Programs
that tests start do the same. The tests in `_FULL_MODE` optimize graphs and draw curves.

A test is quick, so that `make test` runs it, unless it is marked `integration`. If a test is marked `quick("a", "b")`,
its cases a and b are quick, and all other cases are integration tests.
"""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from t2t_keras.machine import heaps
from tests import programs

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("XLA_FLAGS", programs.QUICK_COMPILATION["XLA_FLAGS"])
gc.disable()

# Background jobs of a shell ignore these signals, and programs that tests start and interrupt would inherit this.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# The files of these folders take longest. They run first, so that all processes finish at about the same time.
_FIRST = ("export", "on_jax", "tasks", "layers", "training", "launch", "tests", "search", "models")
# The files of these folders share expensive fixtures, so they run in one process.
_TOGETHER = ("tests/export",)
# Prefixes of the tests that optimize graphs and draw curves.
_FULL_MODE = (
    *("tests/attack/", "tests/documented/", "tests/export/", "tests/faults/", "tests/launch/test_quickstart.py"),
    *("tests/launch/test_real_text.py", "tests/test_from_text_to_answer.py", "tests/test_golden.py"),
    *("tests/training/test_memory_of_the_loss.py", "tests/training/test_replicas.py"),
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Assigns each case to its category, and orders the files by folder."""
    unknown: dict[str, set[str]] = {}
    for item in items:
        mark = item.get_closest_marker("quick")
        if mark is not None:
            assert isinstance(item, pytest.Function)
            case = item.callspec.id
            unknown.setdefault(item.nodeid.partition("[")[0], set(mark.args)).discard(case)
            if case not in mark.args:
                item.add_marker("integration")
    if not any("[" in argument for argument in config.args) and any(unknown.values()):
        raise pytest.UsageError(
            f"pytest.mark.quick names cases that do not exist: { {k: v for k, v in unknown.items() if v} }"
        )
    items.sort(key=lambda item: _FIRST.index(item.path.parent.name) if item.path.parent.name in _FIRST else len(_FIRST))


def pytest_collection_finish() -> None:
    """Enables garbage collection, except for the objects that already exist."""
    gc.freeze()
    gc.set_threshold(10_000, 10, 5)
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Sets the speed-ups before any fixture, alike for all tests of a file, which may compare training bit by bit."""
    programs.quick_mode = not item.nodeid.startswith(_FULL_MODE)
    programs.set_quick_mode(programs.quick_mode)


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator of the same random numbers for each test."""
    return np.random.default_rng(7)


@pytest.fixture(autouse=True, scope="module")
def free_memory(request: pytest.FixtureRequest) -> Iterator[None]:
    """Frees the models and graphs of a file after its tests, which would add up to gigabytes in a process."""
    yield
    if "keras" not in sys.modules or "tensorflow" not in sys.modules:
        return
    for value in vars(request.module).values():
        if hasattr(value, "cache_clear"):
            value.cache_clear()
    # TensorFlow registers a function for each call of tf.custom_gradient in a graph. It refers to the graph.
    gradients = sys.modules["tensorflow.python.framework.ops"].gradient_registry._registry
    for name in [name for name in gradients if name.startswith("CustomGradient-")]:
        del gradients[name]
    sys.modules["keras"].backend.clear_session()  # also collects garbage
    heaps.give_back()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A scheduler for --dist=loadfile that runs each file, and each folder of `_TOGETHER`, in one process."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.partition("::")[0]
            folder = path.rpartition("/")[0]
            return folder if folder in _TOGETHER else path

    return Scheduling(config, log)

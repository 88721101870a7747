"""What all tests share: quiet logs, set before anything imports TensorFlow, a Ctrl-C that is heard, and rings.

Searching for garbage in what imports and the collection of tests have made would take a tenth of all time: there is
none while tests are collected, what is there when they begin is looked at no more, and what is old a fifth as often.

Graphs run as they were traced, since a fifth of all time would go into optimising them for the few times that they run,
and no curves of trainings are drawn, which takes as long as their few steps. This goes for programs too. All is as in
use where that takes minutes anyway, and in tests of exports, of what earlier code found, of memory, of the curves and
of the whole way from text to an answer.

A test is of the quick ring, `make test`, unless it is marked `integration`. Of one marked `quick("a", "b")`, the cases
a and b are in the quick ring and all others in the integration ring.
"""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from t2t_keras.machine import heaps
from tests import programs

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("XLA_FLAGS", programs.QUICKLY_COMPILED["XLA_FLAGS"])
gc.disable()

# A shell's background job ignores these, and so would every program that the tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Their files take longest: begun first, they do not keep one process busy when the others have nothing left.
_FIRST = ("export", "on_jax", "tasks", "layers", "training", "launch", "tests", "search", "models")
# The files of these share what takes long to make, so one process runs them all.
_TOGETHER = ("tests/export",)
# The beginnings of the names of tests in which all is as in use.
_AS_IN_USE = (
    *("tests/attack/", "tests/documented/", "tests/export/", "tests/faults/", "tests/launch/test_quickstart.py"),
    *("tests/launch/test_real_text.py", "tests/test_from_text_to_answer.py", "tests/test_golden.py"),
    *("tests/training/test_memory_of_the_loss.py", "tests/training/test_replicas.py"),
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Gives each case its ring, and orders the files by their folders."""
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
            f"pytest.mark.quick names cases that are not there: { {k: v for k, v in unknown.items() if v} }"
        )
    items.sort(key=lambda item: _FIRST.index(item.path.parent.name) if item.path.parent.name in _FIRST else len(_FIRST))


def pytest_collection_finish() -> None:
    """Garbage is collected again, but for what is there already."""
    gc.freeze()
    gc.set_threshold(10_000, 10, 5)
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before any fixture of the test; tests of one file are alike, since their trainings are compared bit for bit."""
    programs.quickly = not item.nodeid.startswith(_AS_IN_USE)
    programs.be_quick(programs.quickly)


@pytest.fixture(autouse=True, scope="module")
def freed_memory(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each file, frees the models and graphs that it made, which would add up to gigabytes in a process."""
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
    """With --dist=loadfile: what runs each file in one process, and some folders."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.partition("::")[0]
            folder = path.rpartition("/")[0]
            return folder if folder in _TOGETHER else path

    return Scheduling(config, log)

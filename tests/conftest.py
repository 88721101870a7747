"""What all tests share: quiet logs, set before anything imports TensorFlow, a Ctrl-C that is heard, and their order."""

import os
import signal

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# A shell's background job ignores it, and so would every program that the tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Their files take longest: begun first, they do not keep one process busy when the others have nothing left.
_FIRST = ("training", "launch", "tests", "lite", "search", "export")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Orders the files by their folders."""
    items.sort(key=lambda item: _FIRST.index(item.path.parent.name) if item.path.parent.name in _FIRST else len(_FIRST))

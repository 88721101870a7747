"""Prints progress messages on standard error."""

import contextlib
import sys


def tell(*lines: str) -> None:
    """Prints lines on standard error and flushes it; ignores errors, such as a closed pipe or a full disk."""
    with contextlib.suppress(OSError):
        for line in lines:
            print(line, file=sys.stderr, flush=True)

"""Lines that say what is being done, on standard error."""

import contextlib
import sys


def tell(*lines: str) -> None:
    """Prints lines on standard error at once; where it is gone or full, what is being done goes on without them."""
    with contextlib.suppress(OSError):
        for line in lines:
            print(line, file=sys.stderr, flush=True)

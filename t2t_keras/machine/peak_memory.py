"""Measures the peak memory of this process."""

import pathlib
import resource
import sys


def peak_bytes() -> int:
    """Returns the peak resident memory of this process in bytes.

    `getrusage` is not used on Linux, because it includes the memory of the parent at the time of the fork.
    """
    status = pathlib.Path("/proc/self/status")
    if status.exists():
        (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
        return 1024 * int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

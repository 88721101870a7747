"""The processor of this machine."""

import os


def processor() -> str:
    """The name of this machine's processor with the number of cores that this process may use."""
    names: list[str] = []
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return f"{cores} x {names[0] if names else 'CPU core'}"

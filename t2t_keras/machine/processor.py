"""The processor of this machine."""

import math
import os
import pathlib

_CPUINFO = "/proc/cpuinfo"
_CGROUP = "/sys/fs/cgroup"


def num_cores() -> int:
    """The cores that this process may use: those it may run on, but in a container no more than its quota of time."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(int(min(allowed, _quota())), 1)


def _quota() -> float:
    """How many cores' time the container has, by control groups of version 2 or 1; infinite without a limit."""
    for names in (["cpu.max"], ["cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"]):
        try:
            quota, period = " ".join(pathlib.Path(_CGROUP, name).read_text("ascii") for name in names).split()
            if int(quota) > 0 and int(period) > 0:
                return int(quota) / int(period)
        except (OSError, ValueError):  # not of this version, or "max"
            pass
    return math.inf


def processor() -> str:
    """The name of this machine's processor with the number of cores that this process may use."""
    names = _said("model name")
    return f"{num_cores()} x {names[0] if names else 'CPU core'}"


def computes_in_bfloat16() -> bool:
    """Whether the processor has instructions for products in bfloat16; False as well where the system does not say."""
    return any({"avx512_bf16", "amx_bf16"} & {*flags.split()} for flags in _said("flags"))


def _said(name: str) -> list[str]:
    """What Linux says of each core; nothing elsewhere."""
    if not os.path.exists(_CPUINFO):
        return []
    with open(_CPUINFO, encoding="utf-8", errors="replace") as file:
        return [line.partition(":")[2].strip() for line in file if line.partition(":")[0].strip() == name]

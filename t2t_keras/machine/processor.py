"""The processor of this machine."""

import math
import os
import pathlib

_CPUINFO = "/proc/cpuinfo"
_CGROUP = "/sys/fs/cgroup"


def num_cores() -> int:
    """Returns the number of cores that this process may use, limited by its affinity and its container's CPU quota."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(int(min(count, _quota())), 1)


def _quota() -> float:
    """Returns the container's CPU quota in cores, from cgroup v2 or v1; infinite without a limit."""
    for names in (["cpu.max"], ["cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"]):
        try:
            quota, period = " ".join(pathlib.Path(_CGROUP, name).read_text("ascii") for name in names).split()
            if int(quota) > 0 and int(period) > 0:
                return int(quota) / int(period)
        except (OSError, ValueError):  # a different cgroup version, or the value "max"
            pass
    return math.inf


def processor() -> str:
    """Describes the processor by its usable cores and its name, such as "8 x AMD EPYC 7763 64-Core Processor"."""
    names = _cpu_fields("model name")
    return f"{num_cores()} x {names[0] if names else 'CPU core'}"


def computes_in_bfloat16() -> bool:
    """Returns whether the processor has instructions for bfloat16 products; False if the system does not tell."""
    return any({"avx512_bf16", "amx_bf16"} & {*flags.split()} for flags in _cpu_fields("flags"))


def _cpu_fields(name: str) -> list[str]:
    """Returns a field of /proc/cpuinfo for each core; empty on systems other than Linux."""
    if not os.path.exists(_CPUINFO):
        return []
    with open(_CPUINFO, encoding="utf-8", errors="replace") as file:
        return [line.partition(":")[2].strip() for line in file if line.partition(":")[0].strip() == name]

"""The processor of this machine."""

import os

_CPUINFO = "/proc/cpuinfo"


def processor() -> str:
    """The name of this machine's processor with the number of cores that this process may use."""
    names = _said("model name")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return f"{cores} x {names[0] if names else 'CPU core'}"


def computes_in_bfloat16() -> bool:
    """Whether the processor has instructions for products in bfloat16; False as well where the system does not say."""
    return any({"avx512_bf16", "amx_bf16"} & {*flags.split()} for flags in _said("flags"))


def _said(name: str) -> list[str]:
    """What Linux says of each core; nothing elsewhere."""
    if not os.path.exists(_CPUINFO):
        return []
    with open(_CPUINFO, encoding="utf-8", errors="replace") as file:
        return [line.partition(":")[2].strip() for line in file if line.partition(":")[0].strip() == name]

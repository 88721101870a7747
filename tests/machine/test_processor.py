"""The name of this machine's processor, its cores, and its support of bfloat16."""

import os

import pytest

from t2t_keras.machine import processor as processors
from t2t_keras.machine.processor import computes_in_bfloat16, num_cores, processor


def test_the_processor_is_named():
    cores, _, name = processor().partition(" x ")
    assert int(cores) > 0 and name


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "max 100000"}, 64),
        ({"cpu.max": "400000 100000"}, 4),
        ({"cpu.max": "250000 100000"}, 2),
        ({"cpu.max": "50000 100000"}, 1),
        ({"cpu.max": "9900000 100000"}, 64),
        ({"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 64),
        ({}, 64),
    ],
)
def test_a_container_has_the_cores_of_its_quota(tmp_path, monkeypatch, files, cores):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    monkeypatch.setattr(processors, "_CGROUP", str(tmp_path))
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)), raising=False)
    assert num_cores() == cores


@pytest.mark.parametrize(
    ("flags", "expected"),
    [("fma avx2 avx512_bf16 clzero", True), ("amx_bf16", True), ("avx512f avx512_bf16x", False), ("", False)],
)
def test_bfloat16_instructions_are_detected_by_their_flags(tmp_path, monkeypatch, flags, expected):
    path = tmp_path / "cpuinfo"
    path.write_text(f"model name\t: A processor\nflags\t\t: {flags}\nvmx flags\t: amx_bf16\n" * 2, encoding="utf-8")
    monkeypatch.setattr(processors, "_CPUINFO", str(path))
    assert computes_in_bfloat16() is expected
    assert processor().endswith(" x A processor")


def test_an_unknown_system_has_one_unnamed_core(tmp_path, monkeypatch):
    monkeypatch.setattr(processors, "_CPUINFO", str(tmp_path / "none"))
    assert computes_in_bfloat16() is False
    assert processor().endswith(" x CPU core")

"""What this machine's processor is called, and whether it computes in bfloat16."""

import pytest

from t2t_keras.machine import processor as processors
from t2t_keras.machine.processor import computes_in_bfloat16, processor


def test_the_processor_is_named():
    cores, _, name = processor().partition(" x ")
    assert int(cores) > 0 and name


@pytest.mark.parametrize(
    ("flags", "expected"),
    [("fma avx2 avx512_bf16 clzero", True), ("amx_bf16", True), ("avx512f avx512_bf16x", False), ("", False)],
)
def test_instructions_for_bfloat16_are_known_by_their_names(tmp_path, monkeypatch, flags, expected):
    path = tmp_path / "cpuinfo"
    path.write_text(f"model name\t: A processor\nflags\t\t: {flags}\nvmx flags\t: amx_bf16\n" * 2, encoding="utf-8")
    monkeypatch.setattr(processors, "_CPUINFO", str(path))
    assert computes_in_bfloat16() is expected
    assert processor().endswith(" x A processor")


def test_a_system_that_does_not_say_has_a_core_without_a_name(tmp_path, monkeypatch):
    monkeypatch.setattr(processors, "_CPUINFO", str(tmp_path / "none"))
    assert computes_in_bfloat16() is False
    assert processor().endswith(" x CPU core")

"""The measured speed excludes the first update, which traces."""

from types import SimpleNamespace

import pytest

from t2t_keras.fitting import speed
from t2t_keras.planning.fit_rules import cost


@pytest.mark.parametrize(("seconds", "updates"), [(1.0, 6), (0.1, 21)])
def test_at_least_six_updates_and_two_seconds_are_measured(monkeypatch, seconds, updates):
    clock, runs = [0.0], []

    class Step:
        def run(self, batches, count):
            runs.append(count)
            clock[0] += count * seconds + 60 * (len(runs) == 1)

    for name, value in {
        "make_model": lambda *_: None,
        "make_step": lambda *_: Step(),
        "distributed": lambda *_: None,
        "time": SimpleNamespace(monotonic=lambda: clock[0]),
    }.items():
        monkeypatch.setattr(speed, name, value)
    assert speed.updates_per_minute(None, mixed_bfloat16=False) == pytest.approx(60 / seconds * cost(1, 8000))
    assert sum(runs[1:]) == updates

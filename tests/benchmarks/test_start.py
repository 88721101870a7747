"""The benchmark of starting: peers build the same network, and the clock stops after one update."""

import argparse
import json

import numpy as np
import pytest

from benchmarks import start
from benchmarks.train_step import Batches

pytestmark = pytest.mark.integration


def flags(**changed) -> argparse.Namespace:
    usual = {"data_dir": "data", "preset": "tiny", "tokens_per_batch": 100, "peers": "keras_layers,keras_hub"}
    return argparse.Namespace(**{**usual, **changed})


def test_peers_are_given_all_that_they_read(tmp_path, monkeypatch):
    batch = np.array([[5, 6, 1, 0]], np.int32)

    def write(data_dir, batching, tokens, count, path):
        np.savez(path, source_0=batch, target_0=batch)
        return Batches(1, 50, 3, 3, 1.0, 3.0)

    monkeypatch.setattr(start, "write_batches", write)
    engines = list(start.peers(flags(peers="keras_layers"), str(tmp_path)))
    assert [engine.name for engine in engines] == ["keras_layers, fit"]
    assert json.loads((tmp_path / "sizes.json").read_text())["family"] == "transformer"
    (tmp_path / "sizes.json").write_text(
        json.dumps({**json.loads((tmp_path / "sizes.json").read_text()), "d_model": 8, "d_ff": 8, "num_heads": 2})
    )
    with open(tmp_path / "log", "w+") as log:
        begun = start.start(engines[0], log)
    assert begun.seconds > 0 and begun.cpu_seconds > 0

"""Runs the example of docs/scaling_preparation.md with two Dask workers on this machine."""

import re

import pytest

from t2t_keras.data.prepare import prepare
from t2t_keras.data.sources import parallel_files
from t2t_keras.errors import InputError
from tests.data.small_corpora import CONFIG, assert_same_folder, random_pairs, write_corpus
from tests.programs import ROOT

distributed = pytest.importorskip("distributed", reason="Dask comes with the extra ci")
pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def workers():
    """The workers that the example creates."""
    page = ROOT / "docs/scaling_preparation.md"
    (block,) = re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    names = {"__name__": "example"}
    exec(compile(block, page.name, "exec"), names)
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        yield names["DaskWorkers"](client)


def square(number, argument):
    if number == argument:
        raise InputError(f"job {number}")
    return {"square": number * number}


def test_two_workers_write_the_same_bytes_as_processes(tmp_path, monkeypatch, workers):
    monkeypatch.setattr(parallel_files, "_BLOCK_BYTES", 2000)
    monkeypatch.setattr(parallel_files, "_COUNTED_BYTES", 8000)
    pairs = random_pairs(400, 1)
    corpus = write_corpus(tmp_path, train=[*pairs, *pairs[::7]], test=random_pairs(10, 3))
    run, functions = workers.run, set()

    def record_and_run(function, jobs):
        functions.add(getattr(function, "func", function).__name__)
        return run(function, jobs)

    monkeypatch.setattr(workers, "run", record_and_run)
    prepare(corpus, CONFIG, tmp_path / "dask", print, workers, shard_pairs=60)
    assert functions > {"clean_shard", "encode_shard"}
    prepare(corpus, CONFIG, tmp_path / "processes", print, shard_pairs=60)
    assert_same_folder(tmp_path / "dask", tmp_path / "processes")


def test_results_have_their_numbers_and_errors_reach_the_caller(workers):
    results = dict(workers.run(square, ((number, -1) for number in range(5))))
    assert results == {number: {"square": number * number} for number in range(5)}
    assert list(workers.run(square, [])) == []
    with pytest.raises(InputError, match="^job 2$"):
        list(workers.run(square, [(number, 2) for number in range(3)]))

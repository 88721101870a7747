import argparse
import dataclasses
import importlib.util
import json
import subprocess
import sys
import types

import numpy as np
import pytest

from benchmarks import decode, decode_engines, decode_task, turns
from t2t_keras.config import DataConfig
from t2t_keras.data.prepare import prepare
from t2t_keras.data.sources.corpora import Corpus
from t2t_keras.models import presets
from tests.programs import Program

pytestmark = pytest.mark.integration

OTHER = "ours_ctranslate2," if importlib.util.find_spec("ctranslate2") else ""

WORDS = "the cat sees a small dog and big trees over street green apples two old houses by rivers"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Returns prepared data with test sentences of 1 to 18 words, shuffled."""
    rng = np.random.default_rng(1)

    def sentence(words):
        return " ".join(rng.permutation(WORDS.split())[:words])

    pairs = [(sentence(9), sentence(8)) for _ in range(100)]
    test_pairs = [(sentence(words), sentence(4)) for words in rng.permutation(np.arange(1, 19))]
    splits = {"train": pairs[:90], "valid": pairs[90:], "test": test_pairs}
    corpus = Corpus({name: lambda rows=rows: iter(rows) for name, rows in splits.items()}, {"text": "1"})
    return prepare(corpus, DataConfig(vocab_size=300, max_length_ratio=30.0), tmp_path_factory.mktemp("data"), str)


@pytest.fixture
def forked_engines(monkeypatch):
    """Starts engines as forks of a process that has imported TensorFlow."""
    started = types.SimpleNamespace(PIPE=subprocess.PIPE, Popen=lambda command, **more: Program(command[1:], **more))
    monkeypatch.setattr(turns, "subprocess", started)


def flags(*arguments):
    return decode.parser().parse_args(["--data_dir=data", "--preset=tiny", *arguments])


def test_sentences_are_sorted_by_length_and_short_ones_have_about_the_given_words(data):
    sentences = decode_task.pick_sentences(data, flags("--sentences=12", "--latency_sentences=3", "--latency_words=7"))
    lengths = [len(ids) for ids in sentences["sources"]]
    assert lengths == sorted(lengths, reverse=True) and len(lengths) == 12
    encoded, texts = data.split("test"), data.text("test")[0]
    assert sorted(lengths) == sorted(encoded.source_lengths[:12].tolist())
    assert {ids[-1] for name, part in sentences.items() if not name.endswith("texts") for ids in part} == {1}
    assert sentences["texts"] == data.tokenizer.decode_batch(sentences["sources"])
    assert sentences["short_texts"] == data.tokenizer.decode_batch(sentences["short_sources"])
    assert decode_task.vocabularies(data) == [str(data.vocab_path)] * 2
    decoded = data.tokenizer.decode_batch(sentences["short_sources"])
    assert sorted(len(text.split()) for text in decoded) == [6, 7, 8]
    assert set(decoded) <= set(texts)
    assert len(sentences["proof_sources"]) == len(sentences["proof_targets"]) == 12


@pytest.mark.parametrize("encoding", ["sinusoidal", "sinusoidal_halves", "learned"])
def test_position_tables_are_extended_and_removed_for_our_engine(encoding, monkeypatch):
    model = dataclasses.replace(presets.preset("tiny").model, position_encoding=encoding, max_positions=5)
    monkeypatch.setattr(decode_task, "transformer_preset", lambda name: model)
    sizes, weights = decode_task.model_and_weights(argparse.Namespace(model_dir=None, preset="tiny", seed=1), 20, 8)
    table = weights["target_positions/table"]
    assert table.shape == (8, 128) and sizes.vocab_size == 20
    own_weights = decode_engines.trained_weights(weights, dataclasses.asdict(sizes))
    if encoding == "learned":
        assert (table[5:] == table[4]).all() and own_weights["target_positions/table"].shape == (5, 128)
    else:
        np.testing.assert_allclose(table[0, :2], [0, 1] if encoding == "sinusoidal" else [0, 0])
        assert own_weights.keys() == {name for name in weights if "_positions/" not in name}


class StubBench:
    """Replaces `decode.Bench`: gives each engine's score of one token, and always the same output."""

    def __init__(self, **scores):
        self._scores = scores

    def convert(self, engine):
        return ""

    def ask(self, engine, role, **changes):
        return {"outputs": [[5]], "log_probs": [[self._scores[engine]]], "versions": "1"}


def test_an_engine_is_rejected_if_its_scores_differ_by_more_than_rounding(capsys):
    engines = ("ours", "ctranslate2_float32", "ctranslate2_int8")
    bench = StubBench(ours=-2.0, ctranslate2_float32=-2.00002, ctranslate2_int8=-2.1)
    assert decode.check_engines(bench, engines) == list(engines)
    differing_bench = StubBench(ours=-2.0, ctranslate2_float32=-2.0004, ctranslate2_int8=-2.1)
    with pytest.raises(RuntimeError, match="ctranslate2_float32 does not compute our model"):
        decode.check_engines(differing_bench, engines)
    assert "log-probabilities differ by 4.0e-04 at most" in capsys.readouterr().out


@pytest.mark.parametrize("engine", ["ours", *(["ctranslate2_float32"] if OTHER else [])])
def test_the_probabilities_of_all_tokens_except_padding_sum_to_one(engine, data, tmp_path, forked_engines):
    size = data.tokenizer.vocab_size
    sizes, weights = decode_task.model_and_weights(flags(), size, 60)
    sources, targets = [[5, 6, 1]] * (size - 1), [[1], *([token, 1] for token in range(2, size))]
    task = {"sources": sources, "proof_sources": sources, "proof_targets": targets, "batch_sentences": 4}
    task |= {"model": dataclasses.asdict(sizes), "vocabularies": decode_task.vocabularies(data), "output_tokens": 5}
    bench = decode.Bench(str(tmp_path), {}, task, weights)
    assert not bench.convert(engine)
    rows = bench.ask(engine, "score", beam_size=1)["log_probs"]
    assert sum(np.exp(row[0]) for row in rows) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("endings", ["fixed", pytest.param("natural", marks=pytest.mark.slow)])
def test_available_engines_are_measured_and_missing_ones_reported(
    endings, data, tmp_path, monkeypatch, capsys, forked_engines
):
    arguments = [
        f"--data_dir={data.directory}",
        "--preset=tiny",
        "--sentences=5",
        "--batch_sentences=2",
        "--output_tokens=4",
        "--beam_sizes=2",
        "--rounds=1",
        "--runs=1",
        "--tries=1",
        "--latency_sentences=2",
        f"--engines=ours,{OTHER}marian",
        f"--endings={endings}",
        f"--python=marian={sys.executable}",
        f"--output={tmp_path / 'numbers.json'}",
    ]
    # This interpreter cannot import torch, even if it is installed.
    blocked = tmp_path / "blocked"
    (blocked / "torch").mkdir(parents=True)
    (blocked / "torch" / "__init__.py").write_text("raise ImportError('no torch here')")
    monkeypatch.setenv("PYTHONPATH", str(blocked))
    monkeypatch.setattr(sys, "argv", ["decode", *arguments])
    decode.main()
    output, errors = capsys.readouterr()
    assert "marian is skipped: ImportError: no torch here" in errors
    report = json.loads((tmp_path / "numbers.json").read_text())
    (numbers,) = report["results"][endings]["2"]["ours"]
    assert len(numbers["outputs"]) == 5
    assert endings == "natural" or {len(ids) for ids in numbers["outputs"]} == {4}
    assert len(numbers["latencies"]) == 2 and numbers["seconds"] > 0
    assert report["processor"] in output
    assert "| ours |" in output and "marian" not in output

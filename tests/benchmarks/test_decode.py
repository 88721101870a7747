import argparse
import dataclasses
import importlib.util
import json
import subprocess
import sys
import types

import numpy as np
import pytest

from benchmarks import decode, decode_engines, decode_report, decode_task, turns
from t2t_keras.config import DataConfig
from t2t_keras.data.prepare import prepare
from t2t_keras.data.sources.corpora import Corpus
from t2t_keras.errors import InputError
from t2t_keras.models import presets
from tests.programs import Program

pytestmark = pytest.mark.integration

OTHER = "ours_ctranslate2," if importlib.util.find_spec("ctranslate2") else ""

WORDS = "the cat sees a small dog and big trees over street green apples two old houses by rivers"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Prepared data whose test sentences have 1 to 18 words, in a mixed order."""
    rng = np.random.default_rng(1)

    def sentence(words):
        return " ".join(rng.permutation(WORDS.split())[:words])

    pairs = [(sentence(9), sentence(8)) for _ in range(100)]
    tests = [(sentence(words), sentence(4)) for words in rng.permutation(np.arange(1, 19))]
    splits = {"train": pairs[:90], "valid": pairs[90:], "test": tests}
    corpus = Corpus({name: lambda rows=rows: iter(rows) for name, rows in splits.items()}, {"text": "1"})
    return prepare(corpus, DataConfig(vocab_size=300, max_length_ratio=30.0), tmp_path_factory.mktemp("data"), str)


@pytest.fixture
def quickly_started(monkeypatch):
    """Engines are forks of a process that has TensorFlow."""
    started = types.SimpleNamespace(PIPE=subprocess.PIPE, Popen=lambda command, **more: Program(command[1:], **more))
    monkeypatch.setattr(turns, "subprocess", started)


def flags(*arguments):
    return decode.parser().parse_args(["--data_dir=data", "--preset=tiny", *arguments])


def test_flags_have_defaults_that_can_be_measured():
    found = flags()
    assert (found.beam_sizes, found.sentences, found.batch_sentences, found.output_tokens) == ([1, 4], 200, 32, 30)
    assert decode.default_engines("Intel(R) Xeon(R) Processor") == list(decode.ENGINES)
    assert "ctranslate2_one_worker_mkl" in decode.default_engines("AMD EPYC 9R14")
    assert (found.runs, found.endings) == (3, None)
    assert flags("--beam_sizes=2,5", "--engines=ours,marian").beam_sizes == (2, 5)


@pytest.mark.parametrize(
    "argument, message",
    [
        ("--engines=ours,other", "unknown: other; valid: ours"),
        ("--beam_sizes=1,0", "must be a whole number of at least 1, got 0"),
        ("--sentences=-3", "must be a whole number of at least 1, got -3"),
        ("--model_dir=run", "not allowed with argument --preset"),
        ("--python=marian", "expected ENGINE=interpreter, got 'marian'"),
        ("--python=marian=no/such/python", "no/such/python: no such program"),
    ],
)
def test_flags_that_cannot_be_are_refused(argument, message, capsys):
    with pytest.raises(SystemExit):
        flags(argument)
    assert message in capsys.readouterr().err


def test_sentences_come_longest_first_and_short_ones_are_of_about_the_words_asked_for(data):
    found = decode_task.pick_sentences(data, flags("--sentences=12", "--latency_sentences=3", "--latency_words=7"))
    lengths = [len(ids) for ids in found["sources"]]
    assert lengths == sorted(lengths, reverse=True) and len(lengths) == 12
    encoded, texts = data.split("test"), data.text("test")[0]
    assert sorted(lengths) == sorted(encoded.source_lengths[:12].tolist())
    assert {ids[-1] for name, part in found.items() if not name.endswith("texts") for ids in part} == {1}
    assert found["texts"] == data.tokenizer.decode_batch(found["sources"])
    assert found["short_texts"] == data.tokenizer.decode_batch(found["short_sources"])
    assert decode_task.vocabularies(data) == [str(data.vocab_path)] * 2
    decoded = data.tokenizer.decode_batch(found["short_sources"])
    assert sorted(len(text.split()) for text in decoded) == [6, 7, 8]
    assert set(decoded) <= set(texts)
    assert len(found["proof_sources"]) == len(found["proof_targets"]) == 12


def test_batches_hold_all_rows_in_order():
    rows = [[i] for i in range(7)]
    assert decode_engines.batches(rows, 3) == [rows[:3], rows[3:6], rows[6:]]


def test_an_output_ends_before_its_end_symbol_or_its_padding():
    assert [decode_engines.without_end(ids) for ids in ([5, 1, 0], [5, 6, 0], [5, 6], [1])] == [[5], [5, 6], [5, 6], []]


def test_random_weights_are_the_seeds_alone_and_leave_nothing_at_zero_or_one():
    like = {
        "a/kernel": np.zeros([40, 30]),
        "a/bias": np.zeros(50),
        "a/scale": np.ones(50),
        "e/table": np.zeros([90, 16]),
    }
    one, same, other = (decode_task.random_weights(like, seed) for seed in (1, 1, 2))
    for name, array in one.items():
        assert array.shape == like[name].shape and array.dtype == np.float32
        np.testing.assert_array_equal(array, same[name])
        assert not np.array_equal(array, other[name])
    assert abs(one["e/table"].std() - 0.25) < 0.02
    assert abs(one["a/scale"].mean() - 1) < 0.05 and (one["a/bias"] != 0).all()


@pytest.mark.parametrize("encoding", ["sinusoidal", "sinusoidal_halves", "learned"])
def test_position_tables_reach_as_far_as_asked_and_ours_come_back(encoding, monkeypatch):
    model = dataclasses.replace(presets.preset("tiny").model, position_encoding=encoding, max_positions=5)
    monkeypatch.setattr(decode_task, "transformer_preset", lambda name: model)
    sizes, weights = decode_task.model_and_weights(argparse.Namespace(model_dir=None, preset="tiny", seed=1), 20, 8)
    table = weights["target_positions/table"]
    assert table.shape == (8, 128) and sizes.vocab_size == 20
    own = decode_engines.own_weights(weights, dataclasses.asdict(sizes))
    if encoding == "learned":
        assert (table[5:] == table[4]).all() and own["target_positions/table"].shape == (5, 128)
    else:
        np.testing.assert_allclose(table[0, :2], [0, 1] if encoding == "sinusoidal" else [0, 0])
        assert own.keys() == {name for name in weights if "_positions/" not in name}


def test_a_run_with_another_vocabulary_is_refused(monkeypatch):
    def load(model_dir, checkpoint):
        return None, presets.preset("tiny"), None

    monkeypatch.setattr("t2t_keras.runs.load.load_model", load)
    with pytest.raises(InputError, match="run has a vocabulary of 37000, the data of 20"):
        decode_task.model_and_weights(argparse.Namespace(model_dir="run", checkpoint=None), 20, 8)


def test_scores_are_compared_token_by_token():
    assert decode.largest_difference([[1.0, 2.0], [3.0]], [[1.0, 2.25], [2.5]]) == 0.5
    assert decode.largest_difference([[1.0, 2.0]], [[1.0]]) == float("inf")


class StubBench:
    """In the place of `decode.Bench`: an engine's score of one token, and always the same output."""

    def __init__(self, **scores):
        self._scores = scores

    def convert(self, engine):
        return ""

    def ask(self, engine, role, **changes):
        return {"outputs": [[5]], "log_probs": [[self._scores[engine]]], "versions": "1"}


def test_an_engine_is_refused_if_its_scores_differ_by_more_than_rounding(capsys):
    engines = ("ours", "ctranslate2_float32", "ctranslate2_int8")
    bench = StubBench(ours=-2.0, ctranslate2_float32=-2.00002, ctranslate2_int8=-2.1)
    assert decode.proven(bench, engines) == list(engines)
    wrong = StubBench(ours=-2.0, ctranslate2_float32=-2.0004, ctranslate2_int8=-2.1)
    with pytest.raises(RuntimeError, match="ctranslate2_float32 does not compute our model"):
        decode.proven(wrong, engines)
    assert "log-probabilities differ by 4.0e-04 at most" in capsys.readouterr().out


@pytest.mark.parametrize("engine", ["ours", *(["ctranslate2_float32"] if OTHER else [])])
def test_all_tokens_but_padding_have_probability_one_together(engine, data, tmp_path, quickly_started):
    size = data.tokenizer.vocab_size
    sizes, weights = decode_task.model_and_weights(flags(), size, 60)
    sources, targets = [[5, 6, 1]] * (size - 1), [[1], *([token, 1] for token in range(2, size))]
    task = {"sources": sources, "proof_sources": sources, "proof_targets": targets, "batch_sentences": 4}
    task |= {"model": dataclasses.asdict(sizes), "vocabularies": decode_task.vocabularies(data), "output_tokens": 5}
    bench = decode.Bench(str(tmp_path), {}, task, weights)
    assert not bench.convert(engine)
    rows = bench.ask(engine, "score", beam_size=1)["log_probs"]
    assert sum(np.exp(row[0]) for row in rows) == pytest.approx(1, abs=1e-5)


def test_the_table_holds_rates_ratios_percentiles_and_agreement(capsys):
    own = decode_report.Numbers(2.0, [0.010, 0.020, 0.030], 0.5, [[5, 6], [7, 8]], 3)
    other = decode_report.Numbers(1.0, [0.001], 0.25, [[5, 6], [7]], 0)
    slower = decode_report.Numbers(4.0, [0.002], 0.75, [[5, 6], [7]], 2)
    decode_report.print_table({"ours": [own, own], "other": [other, slower]})
    rows = capsys.readouterr().out.splitlines()[2:]
    assert rows[0] == "| ours | 2 | 1.0 | 1.00 | 20.0 | 29.0 | 0.50 | 100.0% | 6 |"
    assert rows[1] == "| other | 1 to 3 | 0.5 to 2.0 | 0.50 to 2.00 | 1.0 to 2.0 | 1.0 to 2.0 | 0.75 | 50.0% | 2 |"


def test_one_sentence_alone_is_compared_with_the_fastest_way_of_the_other():
    def runs(*latencies):
        return [decode_report.Numbers(1.0, [latency], 0.5, [[5]], 1) for latency in latencies]

    numbers = {
        "ours": runs(0.030, 0.032),
        "ours_bfloat16": runs(0.001, 0.001),
        "ours_ctranslate2": runs(0.008, 0.010),
        "ctranslate2_float32": runs(0.009, 0.009),
        "ctranslate2_one_worker_mkl": runs(0.008, 0.005),
    }
    assert decode_report.alone(numbers) == [
        "one sentence alone, float32, p50: ours_ctranslate2 8.0 to 10.0 ms, ctranslate2_one_worker_mkl 5.0 to 8.0 ms, "
        "the first over the second 1.00 to 2.00"
    ]


def test_different_outputs_are_told_by_their_log_probabilities():
    line = decode_report.agreement("other", np.array([-1.0, -3.0, -2.0]), np.array([-2.0, -2.0, -2.0]))
    assert line == (
        "other: 3 outputs differ from ours, which are likelier in 1, less likely in 1 and equally likely in 1"
    )


@pytest.mark.parametrize("endings", ["given", pytest.param("natural", marks=pytest.mark.slow)])
def test_it_measures_what_there_is_and_says_what_is_missing(
    endings, data, tmp_path, monkeypatch, capsys, quickly_started
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
    # An interpreter that has no torch, whatever is installed.
    blocked = tmp_path / "blocked"
    (blocked / "torch").mkdir(parents=True)
    (blocked / "torch" / "__init__.py").write_text("raise ImportError('no torch here')")
    monkeypatch.setenv("PYTHONPATH", str(blocked))
    monkeypatch.setattr(sys, "argv", ["decode", *arguments])
    decode.main()
    printed, errors = capsys.readouterr()
    assert "marian is skipped: ImportError: no torch here" in errors
    written = json.loads((tmp_path / "numbers.json").read_text())
    (numbers,) = written["results"][endings]["2"]["ours"]
    assert len(numbers["outputs"]) == 5
    assert endings == "natural" or {len(ids) for ids in numbers["outputs"]} == {4}
    assert len(numbers["latencies"]) == 2 and numbers["seconds"] > 0
    assert written["processor"] in printed
    assert "| ours |" in printed and "marian" not in printed

"""Sources that are made from masked targets: deterministic in the seed, the epoch and the row."""

import numpy as np
import pytest

from t2t_keras.config import DataConfig
from t2t_keras.data.batching import EpochPlans, Position
from t2t_keras.data.masked_corpus import MaskedCorpus
from t2t_keras.data.pipeline import training_dataset
from t2t_keras.data.prepare import PreparedData, prepare
from t2t_keras.data.sources import corpora

LINES = [f"room {n} has {n % 7} doors and {n % 5} windows in it" for n in range(120)] + ["one"]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> PreparedData:
    folder = tmp_path_factory.mktemp("denoising")
    (folder / "text").write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    (folder / "test").write_text("A room.\n\nRoom 5 has 5 doors and 0 windows in it\n", encoding="utf-8")
    config = DataConfig(task="denoising", vocab_size=320, max_length_ratio=1e9, target_language="en")
    corpus = corpora.of_config(config, folder, [{"train": (folder / "text", None), "test": (folder / "test", None)}])
    return prepare(corpus, config, folder / "data", lambda line: None)


@pytest.fixture(scope="module")
def corpus(data) -> MaskedCorpus:
    return MaskedCorpus(data.split("train"), data.tokenizer.symbols["<mask>"], 1)


def sources(corpus, epoch, rows=None):
    return corpus.at(epoch).source_ids(np.arange(len(corpus)) if rows is None else rows)


def test_no_copy_of_the_text_is_stored(data):
    source, target = (data.directory / f"train.{side}.ids.npy" for side in ("source", "target"))
    assert (data.split("train").source_lengths == 1).all()
    assert source.stat().st_size < target.stat().st_size / 5
    assert data.counts["train"]["kept"] == len(data.split("train"))
    assert data.counts["train"]["held_out"] == 1  # The comparison ignores case.


def test_evaluation_text_is_masked(data):
    masked, text = data.text("test")
    assert text == ["A room.", "", "Room 5 has 5 doors and 0 windows in it"]
    assert masked[1] == "" and all("<mask>" in line for line in (masked[0], masked[2]))
    assert data.split("test").source_ids(np.array([2])).tolist().count(data.tokenizer.symbols["<mask>"]) == 0
    assert data.tokenizer.symbols["<mask>"] in data.split("test").source_ids(np.array([2]))[0]


def test_unmasked_tokens_keep_their_order(data, corpus):
    mask = data.tokenizer.symbols["<mask>"]
    targets = corpus.target_ids(np.arange(len(corpus)))
    for source, target in zip(sources(corpus, 3), targets, strict=True):
        source, target = source[source > 0].tolist(), target[target > 0].tolist()
        assert source[-1] == 1 and mask in source and len(source) <= len(target)
        remaining = iter(target)
        assert all(token in remaining for token in source if token != mask)


def test_masks_depend_only_on_seed_epoch_and_row(data, corpus):
    first = sources(corpus, 0)
    np.testing.assert_array_equal(first, sources(corpus, 0))
    width = first.shape[1]
    rows = np.array([17, 3, 90])
    np.testing.assert_array_equal(corpus.at(0).source_ids(rows, width), first[rows])
    assert (first != sources(corpus, 1)).any(axis=1).mean() > 0.9
    other_seed = MaskedCorpus(data.split("train"), data.tokenizer.symbols["<mask>"], 2)
    assert (first != sources(other_seed, 0)).any(axis=1).mean() > 0.9


def test_resuming_and_replicas_do_not_change_the_batches(corpus):
    plans = EpochPlans(corpus.source_lengths, corpus.target_lengths, 400, 1)
    batches = plans.plan(0).num_batches

    def read_batches(start, count, replicas=1):
        dataset = training_dataset(corpus, plans, start, replicas, range(replicas))
        return list(dataset.take(count * replicas).as_numpy_iterator())

    batches_from_start = read_batches(Position(0, batches - 1), 3)
    for expected, actual in zip(batches_from_start[1:], read_batches(Position(1, 0), 2), strict=True):
        np.testing.assert_array_equal(expected["source"], actual["source"])
    shares = read_batches(Position(1, 0), 1, replicas=2)
    tokens = sorted(tuple(row[row > 0]) for share in shares for row in share["source"] if row.any())
    assert tokens == sorted(tuple(row[row > 0]) for row in batches_from_start[1]["source"] if row.any())

"""Whether models of a text translate sentences or lines: what the training pairs say."""

import dataclasses
import json

import pytest

from t2t_keras.config import Config
from t2t_keras.data.prepare import PreparedData, prepare
from t2t_keras.fitting.fit_steps import apply_choices
from t2t_keras.planning.fit_rules import Choice
from tests.data.small_corpora import CONFIG, corpus_of, some_pairs


def corpus(count: int, several: int):
    """Pairs of which some have three sentences on each side."""
    pairs = [(f"The {source}.", f"Das {target}.") for source, target in some_pairs(count, 1)]
    long = [(f"{source} He said so. It is.", f"{target} Sagte er. Es ist.") for source, target in pairs[:several]]
    return corpus_of(train=[*long, *pairs[several:]], valid=some_pairs(9, 2))


@pytest.mark.parametrize("several, split", [(0, "sentences"), (90, "sentences"), (110, "lines")])
def test_most_pairs_decide(tmp_path, several, split):
    data = prepare(corpus(200, several), CONFIG, tmp_path / "data", print)
    record = json.loads((tmp_path / "data" / "data.json").read_text(encoding="utf-8"))
    kept = data.counts["train"]["kept"]
    assert record["several_sentences"] == pytest.approx(several / kept, abs=0.02)
    assert data.split_by == PreparedData.open(tmp_path / "data").split_by == record["split"] == split


def test_shards_and_lowercasing_change_nothing(tmp_path):
    config = dataclasses.replace(CONFIG, lowercase="both")
    both = [
        prepare(corpus(200, 110), each, tmp_path / name, print, shard_pairs=size)
        for name, each, size in (("shards", CONFIG, 30), ("lowercase", config, 1000))
    ]
    assert [data.split_by for data in both] == ["lines"] * 2


def test_other_tasks_and_earlier_folders_have_sentences(tmp_path):
    data = prepare(corpus(200, 110), dataclasses.replace(CONFIG, task="summarisation"), tmp_path / "other", print)
    assert data.split_by == "sentences"
    path = tmp_path / "other" / "data.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    del record["split"]
    path.write_text(json.dumps(record), encoding="utf-8")
    assert PreparedData.open(tmp_path / "other").split_by == "sentences"


def test_a_fitted_configuration_has_it():
    assert apply_choices([Choice("preset", "tiny", "")], {"split": "lines"}).decode.split == "lines"
    assert Config().decode.split == "sentences"

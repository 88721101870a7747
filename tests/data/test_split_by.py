"""Whether a model translates sentences or lines, as derived from the training pairs."""

import dataclasses
import json

import pytest

from t2t_keras.config import Config
from t2t_keras.data.prepare import PreparedData, prepare
from t2t_keras.fitting.fit_steps import apply_choices
from t2t_keras.planning.fit_rules import Choice
from tests.data.small_corpora import CONFIG, corpus_of, random_pairs


def corpus(count: int, num_several: int):
    """Returns pairs, of which `num_several` have three sentences on each side."""
    pairs = [(f"The {source}.", f"Das {target}.") for source, target in random_pairs(count, 1)]
    long = [(f"{source} He said so. It is.", f"{target} Sagte er. Es ist.") for source, target in pairs[:num_several]]
    return corpus_of(train=[*long, *pairs[num_several:]], valid=random_pairs(9, 2))


@pytest.mark.parametrize("num_several, split", [(0, "sentences"), (90, "sentences"), (110, "lines")])
def test_the_majority_of_pairs_decides(tmp_path, num_several, split):
    data = prepare(corpus(200, num_several), CONFIG, tmp_path / "data", print)
    record = json.loads((tmp_path / "data" / "data.json").read_text(encoding="utf-8"))
    num_kept = data.counts["train"]["kept"]
    assert record["several_sentences"] == pytest.approx(num_several / num_kept, abs=0.02)
    assert data.split_by == PreparedData.open(tmp_path / "data").split_by == record["split"] == split


def test_shards_and_lowercasing_do_not_matter(tmp_path):
    config = dataclasses.replace(CONFIG, lowercase="both")
    both = [
        prepare(corpus(200, 110), each, tmp_path / name, print, shard_pairs=size)
        for name, each, size in (("shards", CONFIG, 30), ("lowercase", config, 1000))
    ]
    assert [data.split_by for data in both] == ["lines"] * 2


def test_other_tasks_and_earlier_folders_use_sentences(tmp_path):
    data = prepare(corpus(200, 110), dataclasses.replace(CONFIG, task="summarisation"), tmp_path / "other", print)
    assert data.split_by == "sentences"
    path = tmp_path / "other" / "data.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    del record["split"]
    path.write_text(json.dumps(record), encoding="utf-8")
    assert PreparedData.open(tmp_path / "other").split_by == "sentences"


def test_a_fitted_configuration_splits_the_same_way():
    assert apply_choices([Choice("preset", "tiny", "")], {"split": "lines"}).decode.split == "lines"
    assert Config().decode.split == "sentences"

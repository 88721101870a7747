"""The rule by which training pairs limit outputs."""

import dataclasses
import json

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies

from t2t_keras.config import DataConfig, DecodeConfig
from t2t_keras.data.output_limit import output_limit
from t2t_keras.data.prepare import PreparedData, prepare
from t2t_keras.search.searcher import output_limits
from t2t_keras.tasks.registry import TASKS, task
from tests.data.small_corpora import CONFIG, corpus_of, some_pairs


def lengths(pairs, seed=1, ratio=1.1, spread=0.2, longest=256):
    """Of made-up text: targets have `ratio` times the tokens of sources, more or less."""
    numbers = np.random.default_rng(seed)
    sources = numbers.gamma(3, 5, pairs)
    both = sources, sources * ratio * np.exp(numbers.normal(0, spread, pairs))
    return tuple(np.clip(np.ceil(side), 2, longest).astype(np.int32) for side in both)


def limit_of(*corpora, **config):
    limit = output_limit(DataConfig(**config), [[corpus] for corpus in corpora])
    return limit["max_length_factor"], limit["max_length_offset"]


def beyond(limit, sources, targets):
    """How many targets are longer than a search with this limit lets an output be."""
    factor, offset = limit
    without = output_limits(sources, DecodeConfig(max_length_factor=factor, max_length_offset=1)).numpy() - 1
    return int((targets > without + offset).sum())


@hypothesis.settings(deadline=None, max_examples=40)
@hypothesis.given(
    pairs=strategies.sampled_from([1, 2, 300, 9_999, 10_000, 45_000]),
    seed=strategies.integers(0, 99),
    ratio=strategies.floats(0.02, 9),
    spread=strategies.floats(0, 1),
)
def test_at_most_one_training_pair_in_10_000_is_beyond_the_limit(pairs, seed, ratio, spread):
    corpus = lengths(pairs, seed, ratio, spread)
    factor, offset = limit_of(corpus)
    assert factor > corpus[1].sum() / corpus[0].sum() and factor * 4 % 1 == 0
    assert beyond((factor, offset), *corpus) <= pairs // 10_000
    margin = max(5, int(np.ceil(corpus[1].mean() / 3)))
    assert offset >= margin and beyond((factor, offset - margin), *corpus) <= pairs // 10_000
    if pairs >= 10_000 and offset > margin:  # no longer than it must be
        assert beyond((factor, offset - margin - 1), *corpus) > pairs // 10_000


def test_the_mean_limit_is_the_smallest():
    sources, targets = corpus = lengths(30_000)
    factor, offset = limit_of(corpus)
    margin = np.ceil(targets.mean() / 3)
    for other in (factor - 0.25, factor + 0.25, factor + 0.5):
        shift = next(shift for shift in range(300) if beyond((other, shift), *corpus) <= 3)
        assert np.ceil(other * sources).mean() + shift + margin >= np.ceil(factor * sources).mean() + offset
    assert np.ceil(factor * sources).mean() + offset < sources.mean() + 50


@pytest.mark.parametrize("tokens_of_a_piece", [1, 4])
@pytest.mark.parametrize("ratio", [0.5, 1.1, 2])
@pytest.mark.parametrize("pairs", [100, 300, 1000])
def test_the_limit_of_few_pairs_has_room_for_other_text_of_the_kind(pairs, ratio, tokens_of_a_piece):
    others = lengths(100_000, 99, ratio)
    for seed in range(5):
        few, more = ([side * tokens_of_a_piece for side in part] for part in (lengths(pairs, seed, ratio), others))
        assert beyond(limit_of(few), *more) <= 10


def test_the_margin_grows_with_targets_and_with_what_has_not_been_seen():
    def limit(pairs, tokens):
        return limit_of((np.full(pairs, tokens), np.full(pairs, tokens)))

    offsets = {1_000_000: 5, 10_000: 5, 1_000: 15, 300: 21, 1: 45}
    assert {pairs: limit(pairs, 9) for pairs in offsets} == {pairs: (1.25, n) for pairs, n in offsets.items()}
    assert [limit(pairs, 60) for pairs in (10_000, 1_000)] == [(1.25, 20), (1.25, 60)]


def test_sources_longer_than_all_of_training_have_room_in_proportion():
    """Also where all sources are about as long, so that a limit without regard to them would do."""
    numbers = np.random.default_rng(1)
    factor, _ = limit_of((numbers.integers(18, 22, 20_000), numbers.integers(28, 32, 20_000)))
    assert factor == 1.75
    assert limit_of((np.full(20_000, 200), np.full(20_000, 9))) == (0.25, 5)  # sources are longer than targets


def test_each_corpus_counts_alone():
    """A language that is one in 10,000 of all pairs has room as well."""
    large, small = lengths(900_000, 1, 1.0), lengths(90, 2, 2.5)
    together = tuple(np.concatenate(sides) for sides in zip(large, small, strict=True))
    assert beyond(limit_of(together), *small) > 9
    both = limit_of(large, small)
    assert both == limit_of(small, large)
    assert beyond(both, *small) == 0 and beyond(both, *large) <= 90
    assert limit_of(large, (np.zeros(0, np.int32),) * 2) == limit_of(large)  # of which nothing was kept


def test_parts_of_a_corpus_add_up():
    sources, targets = lengths(25_000)
    parts = [(sources[start : start + 999], targets[start : start + 999]) for start in range(0, 25_000, 999)]
    whole = output_limit(CONFIG, [[(sources, targets)]])
    assert whole == output_limit(CONFIG, [parts]) == output_limit(CONFIG, [parts[::-1]])
    assert json.loads(json.dumps(whole)) == whole
    DecodeConfig(**whole)


@pytest.mark.parametrize("name", TASKS)
def test_a_task_that_says_how_long_its_outputs_are_is_believed(name):
    corpus, says = lengths(300), {"max_length_factor", "max_length_offset"} & task(name).decode.keys()
    learned = output_limit(DataConfig(task=name), [[corpus]])
    assert bool(learned) == (name in ("translation", "tagging"))
    assert not (says and learned)


def test_the_folder_says_it_whatever_shards_and_processes(tmp_path):
    pairs = some_pairs(400, 1)
    corpus = corpus_of(train=pairs, valid=some_pairs(9, 2))
    folders = {"one": {}, "many": {"shard_pairs": 60}, "together": {"shard_pairs": 60, "processes": 2}}
    data = {name: prepare(corpus, CONFIG, tmp_path / name, print, **each) for name, each in folders.items()}
    train = data["one"].split("train")
    limit = output_limit(CONFIG, [[(train.source_lengths, train.target_lengths)]])
    assert limit and [each.output_limit for each in data.values()] == [limit] * 3
    assert PreparedData.open(tmp_path / "many").output_limit == limit


def test_two_corpora_of_a_folder_are_counted_apart(tmp_path):
    from t2t_keras.data.sources import corpora

    first = corpus_of(train=some_pairs(200, 1), valid=some_pairs(9, 2))
    second = corpus_of(train=[(" ".join(de.split()[:2]), de) for _, de in some_pairs(90, 3)])
    config = dataclasses.replace(CONFIG, tags=("<2de>", "<more>"))
    data = prepare(corpora.combined([first, second], config.tags), config, tmp_path, print, shard_pairs=70)
    train, cut = data.split("train"), data.part_sizes[0]
    sides = train.source_lengths, train.target_lengths
    parts = [tuple(side[rows] for side in sides) for rows in (slice(cut), slice(cut, None))]
    assert data.output_limit == output_limit(config, [[part] for part in parts])
    assert data.output_limit != output_limit(config, [[sides]])


def test_outputs_are_empty_only_where_targets_are():
    sources, targets = lengths(300)
    assert output_limit(CONFIG, [[(sources, targets)]])["min_length"] == 1
    some = np.where(np.arange(300) == 7, 1, targets)  # the end symbol alone
    assert output_limit(CONFIG, [[(sources, targets)], [(sources, some)]])["min_length"] == 0

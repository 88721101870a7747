"""The rule that derives the limit of output lengths from the training pairs."""

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
from tests.data.small_corpora import CONFIG, corpus_of, random_pairs


def lengths(pairs, seed=1, ratio=1.1, spread=0.2, longest=256):
    """Returns lengths of artificial text, whose targets have about `ratio` times the tokens of their sources."""
    numbers = np.random.default_rng(seed)
    sources = numbers.gamma(3, 5, pairs)
    sides = sources, sources * ratio * np.exp(numbers.normal(0, spread, pairs))
    return tuple(np.clip(np.ceil(side), 2, longest).astype(np.int32) for side in sides)


def compute_limit(*corpora, **config):
    limit = output_limit(DataConfig(**config), [[corpus] for corpus in corpora])
    return limit["max_length_factor"], limit["max_length_offset"]


def count_longer_targets(limit, sources, targets):
    """Counts the targets that are longer than a search with this limit allows."""
    factor, offset = limit
    limits_without_offset = (
        output_limits(sources, DecodeConfig(max_length_factor=factor, max_length_offset=1)).numpy() - 1
    )
    return int((targets > limits_without_offset + offset).sum())


@hypothesis.settings(deadline=None, max_examples=40)
@hypothesis.given(
    pairs=strategies.sampled_from([1, 2, 300, 9_999, 10_000, 45_000]),
    seed=strategies.integers(0, 99),
    ratio=strategies.floats(0.02, 9),
    spread=strategies.floats(0, 1),
)
def test_at_most_one_training_pair_in_10_000_exceeds_the_limit(pairs, seed, ratio, spread):
    corpus = lengths(pairs, seed, ratio, spread)
    factor, offset = compute_limit(corpus)
    assert factor > corpus[1].sum() / corpus[0].sum() and factor * 4 % 1 == 0
    assert count_longer_targets((factor, offset), *corpus) <= pairs // 10_000
    margin = max(5, int(np.ceil(corpus[1].mean() / 3)))
    assert offset >= margin and count_longer_targets((factor, offset - margin), *corpus) <= pairs // 10_000
    if pairs >= 10_000 and offset > margin:  # The limit is as small as possible.
        assert count_longer_targets((factor, offset - margin - 1), *corpus) > pairs // 10_000


def test_the_mean_limit_is_the_smallest():
    sources, targets = corpus = lengths(30_000)
    factor, offset = compute_limit(corpus)
    margin = np.ceil(targets.mean() / 3)
    for other_factor in (factor - 0.25, factor + 0.25, factor + 0.5):
        shift = next(shift for shift in range(300) if count_longer_targets((other_factor, shift), *corpus) <= 3)
        assert np.ceil(other_factor * sources).mean() + shift + margin >= np.ceil(factor * sources).mean() + offset
    assert np.ceil(factor * sources).mean() + offset < sources.mean() + 50


@pytest.mark.parametrize("tokens_per_piece", [1, 4])
@pytest.mark.parametrize("ratio", [0.5, 1.1, 2])
@pytest.mark.parametrize("pairs", [100, 300, 1000])
def test_the_limit_of_few_pairs_suffices_for_similar_text(pairs, ratio, tokens_per_piece):
    similar = lengths(100_000, 99, ratio)
    for seed in range(5):
        training, unseen = (
            [side * tokens_per_piece for side in part] for part in (lengths(pairs, seed, ratio), similar)
        )
        assert count_longer_targets(compute_limit(training), *unseen) <= 10


def test_the_margin_grows_with_the_targets_and_shrinks_with_the_pairs():
    def limit(pairs, tokens):
        return compute_limit((np.full(pairs, tokens), np.full(pairs, tokens)))

    offsets = {1_000_000: 5, 10_000: 5, 1_000: 15, 300: 21, 1: 45}
    assert {pairs: limit(pairs, 9) for pairs in offsets} == {pairs: (1.25, n) for pairs, n in offsets.items()}
    assert [limit(pairs, 60) for pairs in (10_000, 1_000)] == [(1.25, 20), (1.25, 60)]


def test_the_limit_is_proportional_to_the_source():
    """The factor follows the ratio even if all sources have about the same length."""
    numbers = np.random.default_rng(1)
    factor, _ = compute_limit((numbers.integers(18, 22, 20_000), numbers.integers(28, 32, 20_000)))
    assert factor == 1.75
    assert compute_limit((np.full(20_000, 200), np.full(20_000, 9))) == (0.25, 5)  # sources longer than targets


def test_the_limit_suffices_for_each_corpus():
    """The limit also suffices for a language with one in 10,000 of all pairs."""
    large, small = lengths(900_000, 1, 1.0), lengths(90, 2, 2.5)
    concatenated = tuple(np.concatenate(sides) for sides in zip(large, small, strict=True))
    assert count_longer_targets(compute_limit(concatenated), *small) > 9
    sides = compute_limit(large, small)
    assert sides == compute_limit(small, large)
    assert count_longer_targets(sides, *small) == 0 and count_longer_targets(sides, *large) <= 90
    assert compute_limit(large, (np.zeros(0, np.int32),) * 2) == compute_limit(large)  # an empty corpus


def test_the_limit_does_not_depend_on_the_parts_of_a_corpus():
    sources, targets = lengths(25_000)
    parts = [(sources[start : start + 999], targets[start : start + 999]) for start in range(0, 25_000, 999)]
    limit = output_limit(CONFIG, [[(sources, targets)]])
    assert limit == output_limit(CONFIG, [parts]) == output_limit(CONFIG, [parts[::-1]])
    assert json.loads(json.dumps(limit)) == limit
    DecodeConfig(**limit)


@pytest.mark.parametrize("name", TASKS)
def test_a_task_with_its_own_limit_has_no_learned_one(name):
    corpus, task_limits = lengths(300), {"max_length_factor", "max_length_offset"} & task(name).decode.keys()
    learned = output_limit(DataConfig(task=name), [[corpus]])
    assert bool(learned) == (name in ("translation", "tagging"))
    assert not (task_limits and learned)


def test_prepared_data_has_the_limit_for_all_shards_and_processes(tmp_path):
    pairs = random_pairs(400, 1)
    corpus = corpus_of(train=pairs, valid=random_pairs(9, 2))
    folders = {"one": {}, "many": {"shard_pairs": 60}, "together": {"shard_pairs": 60, "processes": 2}}
    data = {name: prepare(corpus, CONFIG, tmp_path / name, print, **options) for name, options in folders.items()}
    train = data["one"].split("train")
    limit = output_limit(CONFIG, [[(train.source_lengths, train.target_lengths)]])
    assert limit and [options.output_limit for options in data.values()] == [limit] * 3
    assert PreparedData.open(tmp_path / "many").output_limit == limit


def test_outputs_can_be_empty_only_if_a_target_is():
    sources, targets = lengths(300)
    assert output_limit(CONFIG, [[(sources, targets)]])["min_length"] == 1
    with_empty_target = np.where(np.arange(300) == 7, 1, targets)  # only the end symbol
    assert output_limit(CONFIG, [[(sources, targets)], [(sources, with_empty_target)]])["min_length"] == 0

"""The epoch plan: complete, within the token budget, well filled and deterministic."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_keras.data.batching import EpochPlans, Mixture, Position, bucket_shapes, plan_epoch, plan_in_length_order
from t2t_keras.data.epoch_parts import part_rows
from t2t_keras.errors import InputError


def sentence_lengths(pairs: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Returns source and target lengths with the long tail and the correlation of real text."""
    generator = np.random.default_rng(seed)
    source = np.clip(generator.lognormal(2.7, 0.5, pairs), 2, 120).astype(np.int32)
    target = np.clip(source * generator.normal(1.05, 0.2, pairs), 2, 120).astype(np.int32)
    return source, target


def check_plan(plan, source_lengths, target_lengths, tokens_per_batch):
    """Asserts what holds for every plan."""
    np.testing.assert_array_equal(np.sort(plan.order), np.arange(len(source_lengths)))
    assert plan.offsets[0] == 0 and plan.offsets[-1] == len(source_lengths)
    for batch in range(plan.num_batches):
        pairs = plan.rows(batch)
        rows, source_len, target_len = plan.shape(batch)
        assert 1 <= len(pairs) <= rows
        assert source_lengths[pairs].max() <= source_len
        assert target_lengths[pairs].max() <= target_len
        assert rows * max(source_len, target_len) <= tokens_per_batch


@given(
    lengths=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=80),
    spare=st.integers(0, 300),
    seed=st.integers(-(2**63), 2**63),
    epoch=st.integers(0, 1000),
    static_shapes=st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_any_plan_is_complete_and_within_budget(lengths, spare, seed, epoch, static_shapes):
    source, target = np.array(lengths, np.int32).T
    budget = int(max(source.max(), target.max())) + spare
    check_plan(plan_epoch(source, target, budget, seed, epoch, static_shapes), source, target, budget)
    check_plan(plan_in_length_order(source, target, budget, static_shapes), source, target, budget)


def test_dynamic_shapes_are_tight():
    source, target = sentence_lengths(2000)
    plan = plan_epoch(source, target, 1000, seed=1, epoch=0)
    for batch in range(plan.num_batches):
        pairs = plan.rows(batch)
        assert plan.shape(batch) == (len(pairs), source[pairs].max(), target[pairs].max())


@pytest.mark.parametrize(
    ("static_shapes", "digest"),
    [(False, "60982143eb5a45f2"), (True, "6a80ddd23d64f63d")],
)
def test_plans_are_the_same_in_all_versions(static_shapes, digest):
    # A position in a checkpoint is only valid as long as the same arguments give the same plan, also with a different
    # version of NumPy or of this project.
    source = 2 + np.arange(5000, dtype=np.int32) * 7919 % 61
    target = 2 + np.arange(5000, dtype=np.int32) * 104729 % 67
    plan = plan_epoch(source, target, 1500, seed=7, epoch=4, static_shapes=static_shapes)
    contents = np.concatenate([plan.order, plan.offsets, plan.shapes.ravel()]).astype("<i8").tobytes()
    assert hashlib.sha256(contents).hexdigest()[:16] == digest


@pytest.mark.parametrize("static_shapes", [False, True])
@pytest.mark.parametrize("changes", [{"seed": 1, "epoch": 1}, {"seed": 2, "epoch": 0}])
def test_epochs_and_seeds_have_different_batches(changes, static_shapes):
    source, target = sentence_lengths(5000)
    plans = [
        plan_epoch(source, target, 2000, static_shapes=static_shapes, **which)
        for which in ({"seed": 1, "epoch": 0}, changes)
    ]
    batches = [{frozenset(plan.rows(batch).tolist()) for batch in range(plan.num_batches)} for plan in plans]
    assert len(batches[0] & batches[1]) <= 0.05 * len(batches[0])


@pytest.mark.parametrize("static_shapes", [False, True])
def test_batches_come_in_random_order(static_shapes):
    source, target = sentence_lengths(20000)
    plan = plan_epoch(source, target, 2000, seed=1, epoch=0, static_shapes=static_shapes)
    lengths = plan.shapes[:, 2]
    assert abs(np.corrcoef(lengths[:-1], lengths[1:])[0, 1]) < 0.25
    assert abs(np.corrcoef(lengths, np.arange(len(lengths)))[0, 1]) < 0.25


def test_batches_are_well_filled():
    source, target = sentence_lengths(30000)
    plan = plan_epoch(source, target, 4096, seed=1, epoch=0)
    padded_source = sum(rows * source_len for rows, source_len, _ in plan.shapes.tolist())
    padded_target = sum(rows * target_len for rows, _, target_len in plan.shapes.tolist())
    assert target.sum() / padded_target > 0.93
    assert source.sum() / padded_source > 0.9
    budget_used = plan.shapes[:, 0] * plan.shapes[:, 1:].max(axis=1) / 4096
    assert budget_used.mean() > 0.95


def test_static_shapes_come_from_the_buckets():
    source, target = sentence_lengths(20000)
    plan = plan_epoch(source, target, 4000, seed=1, epoch=0, static_shapes=True)
    longest = int(max(source.max(), target.max()))
    allowed = {(rows, length, length) for rows, length in bucket_shapes(longest, 4000).tolist()}
    assert {plan.shape(batch) for batch in range(plan.num_batches)} <= allowed
    not_full = sum(len(plan.rows(batch)) < plan.shape(batch)[0] for batch in range(plan.num_batches))
    assert not_full <= len(allowed)  # at most one partial batch per bucket
    assert target.sum() / int(plan.shapes[:, 0] @ plan.shapes[:, 2]) > 0.75


@pytest.mark.parametrize(("longest", "budget"), [(256, 25000), (3, 3), (9, 9), (100, 100), (1000, 4096)])
def test_bucket_shapes(longest, budget):
    shapes = bucket_shapes(longest, budget)
    assert (np.diff(shapes[:, 1]) > 0).all()
    assert shapes[-1, 1] >= longest
    assert (shapes.prod(axis=1) <= budget).all()
    assert (shapes[:, 0] >= 1).all()
    assert len(shapes) <= 30


def test_plan_in_length_order_sorts_by_length():
    source, target = sentence_lengths(3000)
    plan = plan_in_length_order(source, target, 2000)
    assert (np.diff(np.maximum(source, target)[plan.order]) >= 0).all()


@pytest.mark.parametrize("plan", [lambda s, t, most: plan_epoch(s, t, most, seed=1, epoch=0), plan_in_length_order])
def test_a_pair_longer_than_the_budget_is_named(plan):
    source, target = np.array([3, 4, 5], np.int32), np.array([3, 101, 5], np.int32)
    with pytest.raises(InputError, match=r"pair 1 .*101 tokens.*train\.tokens_per_batch=100 .*at least 101"):
        plan(source, target, 100)
    assert plan(source, target, 101).num_batches == 2
    with pytest.raises(InputError, match="the corpus has no pairs"):
        plan(source[:0], target[:0], 100)
    with pytest.raises(ValueError, match=r"source_lengths and target_lengths.*\(3,\) and \(2,\)"):
        plan(source, target[:2], 100)


def test_a_missing_batch_is_an_error():
    plan = plan_in_length_order(*sentence_lengths(100), 1000)
    for batch in (-1, plan.num_batches):
        with pytest.raises(ValueError, match=f"got {batch}"):
            plan.rows(batch)


def test_advancing_skips_batches():
    plans = EpochPlans(*sentence_lengths(300), 1000, seed=5)
    position = start = Position(0, 2)
    for steps in range(3 * plans.plan(0).num_batches):
        assert plans.advance(start, steps) == position
        assert position.batch < plans.plan(position.epoch).num_batches
        is_last = position.batch + 1 == plans.plan(position.epoch).num_batches
        position = Position(position.epoch + 1, 0) if is_last else Position(position.epoch, position.batch + 1)
    assert position.epoch >= 2
    with pytest.raises(ValueError, match="batches must not be negative, got -1"):
        plans.advance(start, -1)


@pytest.mark.parametrize("part_pairs", [300, 100])
def test_epochs_are_passes_over_all_pairs(part_pairs):
    plans = EpochPlans(*sentence_lengths(300), 1000, seed=5, part_pairs=part_pairs)
    parts = 300 // part_pairs
    count = plans.plan(0).num_batches
    assert plans.epochs(Position(0, 0)) == 0
    assert plans.epochs(Position(2 * parts, 0)) == 2
    assert plans.epochs(Position(0, count // 2)) == pytest.approx(count // 2 / count / parts)
    assert plans.num_batches(3) == 3 * parts * count
    assert plans.num_batches(1e-6) == 1


def test_positions_continue_from_any_position():
    plans = EpochPlans(*sentence_lengths(300), 1000, seed=5)
    positions = plans.positions(Position())
    walked = [next(positions) for _ in range(50)]
    assert walked[0] == Position(0, 0)
    later = plans.positions(walked[20])
    assert [next(later) for _ in range(30)] == walked[20:]


def test_largest_shapes():
    source, target = sentence_lengths(3000)
    plans = EpochPlans(source, target, 2000, seed=1)
    shapes = [tuple(shape) for shape in plans.plan(3).shapes.tolist()]
    largest = plans.largest_shapes(3)
    assert set(largest) <= set(shapes)
    assert max(rows * (s + t) for rows, s, t in shapes) == max(rows * (s + t) for rows, s, t in largest)
    by_weights = [max(rows * (s * s + t * t + s * t) for rows, s, t in candidates) for candidates in (shapes, largest)]
    assert by_weights[0] == by_weights[1]


@pytest.mark.parametrize("static_shapes", [False, True])
def test_a_large_corpus_is_planned_in_parts(static_shapes):
    source, target = sentence_lengths(20_000)
    plans = EpochPlans(source, target, 1000, seed=1, static_shapes=static_shapes, part_pairs=9000)
    parts = [plans.plan(epoch) for epoch in range(6)]
    for first in (0, 3):  # two passes each
        rows = np.concatenate([plan.order for plan in parts[first : first + 3]])
        np.testing.assert_array_equal(np.sort(rows), np.arange(20_000))
    for plan in parts:
        assert 3000 < len(plan.order) <= 9000
        for batch in range(plan.num_batches):
            rows, source_len, target_len = plan.shape(batch)
            assert rows * max(source_len, target_len) <= 1000
            assert source[plan.rows(batch)].max() <= source_len and target[plan.rows(batch)].max() <= target_len
    assert set(parts[0].order.tolist()) != set(parts[3].order.tolist())
    again = EpochPlans(source.copy(), target.copy(), 1000, 1, static_shapes, part_pairs=9000).plan(4)
    np.testing.assert_array_equal(again.order, parts[4].order)
    assert plans.advance(Position(1, 0), parts[1].num_batches) == Position(2, 0)


def test_parts_are_the_same_in_all_versions():
    rows = part_rows(100_000, parts=3, seed=7, epoch=4)
    assert hashlib.sha256(rows.astype("<i8").tobytes()).hexdigest()[:16] == "014b6fb5c2b9f159"


@pytest.mark.parametrize("part_pairs", [100_000, 9000])
def test_a_mixture_repeats_each_corpus_according_to_its_weight(part_pairs):
    source, target = sentence_lengths(30_000)
    mixture = Mixture((10_000, 20_000), (2.25, 0.5))
    plans = EpochPlans(source, target, 1000, 3, mixture=mixture, part_pairs=part_pairs)
    parts = -(-32_500 // part_pairs)
    passes = [np.concatenate([plans.plan(n * parts + part).order for part in range(parts)]) for n in range(2)]
    for order in passes:
        times = np.bincount(order, minlength=30_000)
        assert times.sum() == 32_500
        assert sorted(set(times[:10_000])) == [2, 3] and times[:10_000].sum() == 22_500
        assert sorted(set(times[10_000:])) == [0, 1] and times[10_000:].sum() == 10_000
    assert set(passes[0]) != set(passes[1])
    again = EpochPlans(source, target, 1000, 3, mixture=mixture, part_pairs=part_pairs).plan(0)
    np.testing.assert_array_equal(again.order, plans.plan(0).order)


@pytest.mark.parametrize(
    ("weights", "complaint"),
    [
        ((1e9, 1.0), r"train.corpus_weights=1e\+09,1 makes a pass of 100,000,000,200 pairs.* 1 to 1,000,000,000;"),
        ((1e-9, 1e-9), "train.corpus_weights=1e-09,1e-09 makes a pass of 0 pairs"),
    ],
)
def test_invalid_weights_are_rejected_before_planning(weights, complaint):
    source, target = sentence_lengths(300)
    with pytest.raises(InputError, match=complaint):
        EpochPlans(source, target, 1000, 3, mixture=Mixture((100, 200), weights))
    EpochPlans(source, target, 1000, 3, mixture=Mixture((100, 200), (9.9e6, 1.0)))  # the largest valid weight


def test_equal_weights_plan_every_pair_once():
    source, target = sentence_lengths(300)
    plan = EpochPlans(source, target, 1000, 3, mixture=Mixture((100, 200), (1.0, 1.0))).plan(1)
    assert sorted(plan.order) == list(range(300))
    np.testing.assert_array_equal(plan.shapes, plan_epoch(source, target, 1000, 3, 1).shapes)

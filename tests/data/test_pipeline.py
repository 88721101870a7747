"""The pipeline: the shares add up to the plan's batches, from any position."""

import ctypes
import itertools
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.data.batching import EpochPlans, Position, plan_in_length_order
from t2t_keras.data.encoded import EncodedCorpus
from t2t_keras.data.masked_corpus import MaskedCorpus
from t2t_keras.data.pipeline import dataset_of, raising, share_shape, shares, training_dataset, validation_batches
from t2t_keras.errors import InputError
from t2t_keras.symbols import EOS_ID

PAIRS = 200
BUDGET = 300
ROOT = pathlib.Path(__file__).parents[2]

# Reads a batch, then allocates a large block ten times, writes to its pages and prints the number of minor page faults.
# A block that glibc maps for each allocation has 6,144 of them. glibc maps the first block and takes all later ones
# from its heap.
COUNT_PAGE_FAULTS = """
import ctypes, itertools, resource
import numpy as np
from t2t_keras.data.pipeline import dataset_of
ids = np.ones([2, 3], np.int32)
iterator = iter(dataset_of(itertools.repeat({"source": ids, "target": ids})))
next(iterator)
c = ctypes.CDLL(None)
c.malloc.restype, c.malloc.argtypes, c.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
for round in range(12):
    if round == 2:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = c.malloc(24 << 20)
    ctypes.memset(block, 1, 24 << 20)
    c.free(block)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def encoded(lengths: np.ndarray, base: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns sentences that consist of base + row, filler ids and the end symbol."""
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ids = np.full(offsets[-1], 7, np.uint16)
    ids[offsets[1:] - 1] = EOS_ID
    ids[offsets[:-1]] = base + np.arange(len(lengths))
    return ids, offsets


@pytest.fixture(scope="module")
def corpus() -> EncodedCorpus:
    generator = np.random.default_rng(1)
    source = generator.integers(2, 20, PAIRS)
    target = np.clip(source + generator.integers(-3, 4, PAIRS), 2, 25)
    return EncodedCorpus([(encoded(source, 1000), encoded(target, 2000))])


@pytest.fixture(scope="module", params=[False, True], ids=["dynamic", "static"])
def plans(request, corpus) -> EpochPlans:
    return EpochPlans(corpus.source_lengths, corpus.target_lengths, BUDGET, seed=1, static_shapes=request.param)


def rows_of(elements) -> list[int]:
    """Returns the sorted corpus rows of the elements; asserts that both sides belong to the same pair."""
    rows = []
    for element in elements:
        source, target = np.asarray(element["source"]), np.asarray(element["target"])
        np.testing.assert_array_equal(source[:, 0] > 0, target[:, 0] > 0)
        real = source[:, 0] > 0
        np.testing.assert_array_equal(source[real, 0] - 1000, target[real, 0] - 2000)
        assert not source[~real].any() and not target[~real].any()
        rows.extend((source[real, 0] - 1000).tolist())
    return sorted(rows)


def take(dataset, count: int) -> list[dict[str, np.ndarray]]:
    return list(itertools.islice(dataset.as_numpy_iterator(), count))


@pytest.mark.parametrize(("num_replicas", "rows_multiple"), [(1, 1), (3, 1), (8, 2)])
def test_shares_add_up_to_the_plan(corpus, plans, num_replicas, rows_multiple):
    count = plans.plan(0).num_batches + 3  # extends into the second epoch
    dataset = training_dataset(corpus, plans, Position(), num_replicas, range(num_replicas), rows_multiple)
    elements = take(dataset, count * num_replicas)
    for index, position in enumerate(itertools.islice(plans.positions(Position()), count)):
        batch = elements[index * num_replicas : (index + 1) * num_replicas]
        plan = plans.plan(position.epoch)
        assert rows_of(batch) == sorted(plan.rows(position.batch).tolist())
        rows, source_len, target_len = share_shape(plan.shape(position.batch), num_replicas, rows_multiple)
        assert rows % rows_multiple == 0
        for element in batch:
            assert element["source"].shape == (rows, source_len)
            assert element["target"].shape == (rows, target_len)
            assert element["source"].dtype == element["target"].dtype == np.int32


def test_sentences_are_complete(corpus, plans):
    (element,) = shares(corpus, plans.plan(0), 0)
    rows = element["source"][:, 0][element["source"][:, 0] > 0] - 1000
    np.testing.assert_array_equal((element["source"] > 0).sum(axis=1)[: len(rows)], corpus.source_lengths[rows])
    np.testing.assert_array_equal((element["target"] > 0).sum(axis=1)[: len(rows)], corpus.target_lengths[rows])
    np.testing.assert_array_equal((element["target"] == EOS_ID).sum(axis=1)[: len(rows)], 1)


def test_workers_get_the_shares_of_their_replicas(corpus, plans):
    all_shares = take(training_dataset(corpus, plans, Position(), 4, range(4)), 40)
    first = take(training_dataset(corpus, plans, Position(), 4, range(2)), 20)
    second = take(training_dataset(corpus, plans, Position(), 4, range(2, 4)), 20)
    worker_shares = itertools.chain.from_iterable(first[i : i + 2] + second[i : i + 2] for i in range(0, 20, 2))
    for expected, actual in zip(all_shares, worker_shares, strict=True):
        np.testing.assert_array_equal(expected["source"], actual["source"])
        np.testing.assert_array_equal(expected["target"], actual["target"])


@pytest.mark.parametrize("skipped", [1, 7, 30])
def test_resuming_replays_and_skips_nothing(corpus, plans, skipped):
    uninterrupted = take(training_dataset(corpus, plans, Position(), 2, range(2)), 2 * (skipped + 12))
    start = plans.advance(Position(), skipped)
    resumed = take(training_dataset(corpus, plans, start, 2, range(2)), 2 * 12)
    for expected, actual in zip(uninterrupted[2 * skipped :], resumed, strict=True):
        np.testing.assert_array_equal(expected["source"], actual["source"])
        np.testing.assert_array_equal(expected["target"], actual["target"])


def test_more_replicas_than_pairs_give_empty_shares(corpus):
    plan = plan_in_length_order(corpus.source_lengths[:2], corpus.target_lengths[:2], BUDGET)
    empty_shares = shares(corpus, plan, 0, 4, range(4))
    assert [int((share["source"][:, 0] > 0).sum()) for share in empty_shares] == [1, 1, 0, 0]
    assert len({share["source"].shape for share in empty_shares}) == 1
    (last,) = shares(corpus, plan, 0, 4, [3])
    assert not last["source"].any() and not last["target"].any()


@pytest.mark.integration
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library is not glibc")
def test_the_dataset_does_not_change_the_mmap_threshold():
    """With a changed threshold, each operation would map new memory for tensors above 128 KiB, which halves the
    training speed.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "LD_PRELOAD"))}
    command = [sys.executable, "-c", COUNT_PAGE_FAULTS]
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    assert int(done.stdout) < 1_000


def test_reading_past_the_last_batch_is_an_error(corpus):
    ids = np.ones([2, 3], np.int32)
    dataset = dataset_of([{"source": ids, "target": ids}])
    assert dataset.cardinality() == tf.data.INFINITE_CARDINALITY and not dataset.options().autotune.enabled
    iterator = dataset.as_numpy_iterator()
    np.testing.assert_array_equal(next(iterator)["source"], ids)
    with pytest.raises(tf.errors.InvalidArgumentError):
        next(iterator)


@pytest.mark.parametrize("num_replicas", [1, 3])
def test_validation_is_one_pass_in_order_of_length(corpus, num_replicas):
    batches = list(validation_batches(corpus, BUDGET, num_replicas, range(num_replicas)))
    assert rows_of(itertools.chain.from_iterable(batches)) == list(range(PAIRS))
    lengths = [max(batch[0]["source"].shape[1], batch[0]["target"].shape[1]) for batch in batches]
    assert lengths == sorted(lengths)
    for batch in batches:
        assert len(batch) == num_replicas
        assert sum(share["source"].shape[0] for share in batch) * lengths[0] <= BUDGET + num_replicas * lengths[-1]
        rows = [int((share["source"][:, 0] > 0).sum()) for share in batch]
        assert max(rows) - min(rows) <= 1


def test_validation_checks_the_budget_before_the_first_batch(corpus):
    with pytest.raises(InputError, match=r"train\.tokens_per_batch=5"):
        validation_batches(corpus, 5)


@pytest.mark.parametrize(
    ("replica_ids", "rows_multiple", "message"),
    [([2], 1, r"num_replicas=2.*\[2\]"), ([], 1, r"\[\]"), ([0], 0, "rows_multiple must be positive, got 0")],
)
def test_invalid_arguments_are_rejected(corpus, plans, replica_ids, rows_multiple, message):
    with pytest.raises(ValueError, match=message):
        training_dataset(corpus, plans, Position(), 2, replica_ids, rows_multiple)
    if rows_multiple:
        with pytest.raises(ValueError, match=message):
            validation_batches(corpus, BUDGET, 2, replica_ids)


def test_each_epoch_has_its_own_masks(corpus):
    masked = MaskedCorpus(corpus, mask_id=5, seed=1)
    plans = EpochPlans(masked.source_lengths, masked.target_lengths, BUDGET, seed=1)
    elements = training_dataset(masked, plans, Position(), 1, [0]).as_numpy_iterator()
    epochs = [list(itertools.islice(elements, plans.plan(epoch).num_batches)) for epoch in (0, 1)]

    def sources(epoch):
        pairs = [pair for element in epoch for pair in zip(element["target"], element["source"], strict=True)]
        return {int(target[0]): tuple(source[source > 0]) for target, source in pairs}

    first, second = map(sources, epochs)
    assert first.keys() == second.keys()
    assert sum(first[row] != second[row] for row in first) > len(first) / 4


def test_errors_of_reading_replace_those_of_tensorflow(corpus):
    class Unreadable:
        def at(self, epoch):
            raise OSError("the disk is gone")

    plans = EpochPlans(corpus.source_lengths, corpus.target_lengths, BUDGET, seed=1)
    errors: list[Exception] = []
    dataset = training_dataset(Unreadable(), plans, Position(0, 0), 1, [0], on_error=errors.append)
    with pytest.raises(OSError, match="the disk is gone"), raising(errors):
        next(iter(dataset))
    with pytest.raises(tf.errors.OpError), raising([]):
        next(iter(dataset))

import numpy as np
import pytest

from t2t_keras.data.training_split import repeated_rows


def find_repeated(shards, sorted_keys):
    return repeated_rows([len(shard) for shard in shards], shards.__getitem__, sorted_keys)


@pytest.mark.parametrize("sorted_keys", [1 << 20, 40, 1])
def test_repeated_rows_are_found_for_any_division_of_the_keys(sorted_keys):
    generator = np.random.default_rng(1)
    pool = generator.integers(0, 2**64, 60, np.uint64)
    shards = [generator.choice(pool, size) for size in (50, 0, 30, 1)]
    seen: set[int] = set()
    for shard, repeated in zip(shards, find_repeated(shards, sorted_keys), strict=True):
        expected = []
        for row, key in enumerate(shard.tolist()):
            if key in seen:
                expected.append(row)
            seen.add(key)
        assert repeated.tolist() == expected


def test_no_shards_and_no_repetitions():
    assert find_repeated([], 1) == []
    assert [len(rows) for rows in find_repeated([np.arange(5, dtype=np.uint64), np.zeros(0, np.uint64)], 1)] == [0, 0]

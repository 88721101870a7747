import os
import resource
import subprocess
import sys

import numpy as np
import pytest

from t2t_keras.data import encoded
from t2t_keras.data.encoded import EncodedCorpus, shard_name, write_encoded
from t2t_keras.errors import InputError
from t2t_keras.symbols import EOS_ID

PAIRS = [([5, 6], [7]), ([], [300, 4, 5]), ([9], [9]), ([8, 8, 8, 8], [])]


@pytest.fixture
def corpus(tmp_path):
    assert write_encoded(tmp_path, "train", PAIRS, 1000) == len(PAIRS)
    return EncodedCorpus.open(tmp_path, "train")


def test_lengths_include_the_end_symbol(corpus):
    assert len(corpus) == 4
    np.testing.assert_array_equal(corpus.source_lengths, [3, 1, 2, 5])
    np.testing.assert_array_equal(corpus.target_lengths, [2, 4, 2, 1])
    assert corpus.source_lengths.dtype == corpus.target_lengths.dtype == np.int32


def test_rows_in_any_order_padded_to_the_longest(corpus):
    ids = corpus.source_ids(np.array([2, 0, 2]))
    np.testing.assert_array_equal(ids, [[9, EOS_ID, 0], [5, 6, EOS_ID], [9, EOS_ID, 0]])
    assert ids.dtype == np.int32
    np.testing.assert_array_equal(corpus.target_ids(np.array([1])), [[300, 4, 5, EOS_ID]])


def test_rows_padded_to_a_given_length(corpus):
    np.testing.assert_array_equal(corpus.target_ids(np.array([0, 3]), 3), [[7, EOS_ID, 0], [EOS_ID, 0, 0]])
    with pytest.raises(ValueError, match="length must be at least the longest sentence's 5, got 4"):
        corpus.source_ids(np.array([3]), 4)


def test_each_id_changes_the_checksum(tmp_path, monkeypatch, corpus):
    monkeypatch.setattr(encoded, "_CHECKED_IDS", 2)
    checksums = {corpus.checksum()}
    changed = (
        [([6, 6], [7]), PAIRS[1], PAIRS[2], PAIRS[3]],
        [*PAIRS[:3], ([8, 8, 8, 9], [])],
        [([5, 6], [8]), *PAIRS[1:]],
    )
    for number, pairs in enumerate(changed):
        (tmp_path / str(number)).mkdir()
        write_encoded(tmp_path / str(number), "train", pairs, 1000)
        checksums.add(EncodedCorpus.open(tmp_path / str(number), "train").checksum())
    assert len(checksums) == 4


def test_no_rows_give_no_rows(corpus):
    assert corpus.source_ids(np.array([], np.int64)).shape == (0, 0)
    assert corpus.source_ids(np.array([], np.int64), 7).shape == (0, 7)


@pytest.mark.parametrize(("vocab_size", "dtype"), [(2**16, np.uint16), (2**16 + 1, np.uint32)])
def test_random_sentences_round_trip_for_each_dtype(tmp_path, monkeypatch, vocab_size, dtype):
    monkeypatch.setattr(encoded, "_FLUSH_PAIRS", 7)
    generator = np.random.default_rng(1)
    sentences = [generator.integers(2, vocab_size, size).tolist() for size in generator.integers(0, 30, 50)]
    sentences[0] = [vocab_size - 1]
    write_encoded(tmp_path, "valid", zip(sentences, reversed(sentences), strict=True), vocab_size)
    corpus = EncodedCorpus.open(tmp_path, "valid")
    rows = generator.permutation(50)
    for sides, ids in ((sentences, corpus.source_ids(rows)), (sentences[::-1], corpus.target_ids(rows))):
        for row, line in zip(rows, ids, strict=True):
            expected = [*sides[row], EOS_ID]
            assert line.tolist() == expected + [0] * (len(line) - len(expected))
    assert np.load(tmp_path / "valid.source.ids.npy").dtype == dtype


def test_a_missing_split_is_an_error(tmp_path):
    with pytest.raises(InputError, match=r"contains no prepared split 'test' \(test.source.ids.npy is missing\)"):
        EncodedCorpus.open(tmp_path, "test")


def test_truncated_files_are_detected(tmp_path, corpus):
    path = tmp_path / "train.source.ids.npy"
    contents = path.read_bytes()
    path.write_bytes(contents[:-2])
    with pytest.raises(InputError, match="damaged"):
        EncodedCorpus.open(tmp_path, "train")
    path.write_bytes(b"")
    with pytest.raises(InputError, match="damaged"):
        EncodedCorpus.open(tmp_path, "train")
    path.write_bytes(contents)
    (tmp_path / "train.source.offsets.npy").write_bytes((tmp_path / "train.target.offsets.npy").read_bytes())
    with pytest.raises(InputError, match="do not add up to the 11 ids"):
        EncodedCorpus.open(tmp_path, "train")


def test_an_error_while_writing_leaves_nothing_behind(tmp_path):
    def pairs():
        yield [3], [4]
        raise RuntimeError("the source of pairs broke")

    with pytest.raises(RuntimeError):
        write_encoded(tmp_path, "train", pairs(), 100)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def shards(tmp_path):
    """Writes the pairs as three shards, of which the second is empty."""
    for number, pairs in enumerate((PAIRS[:1], [], PAIRS[1:])):
        write_encoded(tmp_path, shard_name("train", number, 3), pairs, 1000)
    return tmp_path


def test_shards_are_read_as_one(shards, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    write_encoded(folder, shard_name("train", 0, 1), PAIRS, 1000)
    single, sharded = EncodedCorpus.open(folder, "train"), EncodedCorpus.open(shards, "train")
    assert len(sharded) == len(single) == 4
    for rows in ([3, 0, 1, 3], [2], []):
        for side in ("source", "target"):
            for length in (None, 9):
                expected, actual = (getattr(c, f"{side}_ids")(np.array(rows, int), length) for c in (single, sharded))
                np.testing.assert_array_equal(actual, expected)
                assert actual.dtype == np.int32
    np.testing.assert_array_equal(sharded.source_lengths, single.source_lengths)
    np.testing.assert_array_equal(sharded.target_lengths, single.target_lengths)


def test_a_missing_shard_is_an_error(shards):
    (shards / "train.00002-of-00003.source.ids.npy").unlink()
    with pytest.raises(InputError, match=r"train.00002-of-00003.source.ids.npy is missing"):
        EncodedCorpus.open(shards, "train")


def test_shards_of_two_preparations_are_not_mixed(shards):
    write_encoded(shards, "train", PAIRS, 1000)
    with pytest.raises(InputError, match="damaged: contains shards of several preparations of 'train'"):
        EncodedCorpus.open(shards, "train")


LIMITED = """
import os, resource, sys
import numpy as np
from t2t_keras.data.encoded import EncodedCorpus

directory, limit, most_open = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
corpus = EncodedCorpus.open(directory, "train")
rows = np.random.default_rng(1).permutation(len(corpus))
for _ in range(2):  # the second time with the files that the first one left open
    ids = corpus.source_ids(rows), corpus.target_ids(rows)
    assert len(os.listdir("/proc/self/fd")) <= most_open, os.listdir("/proc/self/fd")
sums = [side.sum(axis=1).tolist() for side in ids]
assert sums == [[row % 7 + 3 + 1 for row in rows], [row // 7 % 5 + 3 + 1 for row in rows]], sums
assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == limit
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts open files as Linux shows them")
@pytest.mark.parametrize(
    ("soft", "hard", "raised", "most_open"),
    [
        (40, 40, 40, 30),  # Too few for 200 files: files without a free descriptor are opened for each read.
        (40, 150, 150, 85),
        (40, 4000, 400, 210),  # Raised to the number that 200 files need.
        (1000, 4000, 1000, 210),
    ],
)
def test_the_number_of_shards_can_exceed_the_limit_of_open_files(tmp_path, soft, hard, raised, most_open):
    for number in range(100):
        pair = [number % 7 + 3], [number // 7 % 5 + 3]
        write_encoded(tmp_path, shard_name("train", number, 100), [pair], 1000)
    command = [sys.executable, "-c", LIMITED, tmp_path, str(raised), str(most_open)]
    limits = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))}
    done = subprocess.run(command, capture_output=True, text=True, check=False, **limits)
    assert (done.returncode, done.stderr) == (0, "")


def test_each_sentence_is_found_by_its_row(tmp_path):
    """There are more sentences than between two stored offsets, in several shards."""
    generator = np.random.default_rng(3)
    sentences = [generator.integers(2, 90, size).tolist() for size in generator.integers(0, 9, 211)]
    for number, bounds in enumerate(((0, 3), (3, 3), (3, 120), (120, 211))):
        write_encoded(tmp_path, shard_name("train", number, 4), [(s, s[::-1]) for s in sentences[slice(*bounds)]], 100)
    corpus = EncodedCorpus.open(tmp_path, "train")
    for row, sentence in enumerate(sentences):
        assert corpus.source_ids(np.array([row])).tolist() == [[*sentence, EOS_ID]]
        assert corpus.target_ids(np.array([row, 0])).tolist()[0][: len(sentence) + 1] == [*sentence[::-1], EOS_ID]


def test_an_array_of_ids_with_several_dimensions_is_damaged(tmp_path, corpus):
    for array in (np.zeros([2, 3], np.uint16), np.array(["a", None], object)):
        np.save(tmp_path / "train.source.ids.npy", array, allow_pickle=True)
        with pytest.raises(InputError, match=r"train.source.ids.npy: damaged: not a flat array"):
            EncodedCorpus.open(tmp_path, "train")

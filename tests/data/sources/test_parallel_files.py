import itertools
import os

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from t2t_keras.data.sources import parallel_files
from t2t_keras.data.sources.corpora_files import read_pairs
from t2t_keras.data.sources.parallel_files import ParallelFiles, split
from t2t_keras.errors import InputError

LINES = st.lists(st.text("aß \r\u2028", max_size=9), max_size=20)


def run_all(function, jobs):
    return {number: function(number, argument) for number, argument in jobs}


def write_files(folder, source, target):
    files = ParallelFiles(folder / "a.en", folder / "a.de")
    for path, text in ((files.source, source), (files.target, target)):
        path.write_bytes(text)
    return files


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("text")


@settings(deadline=None)
@given(LINES, st.sampled_from(["", "\ufeff"]), st.booleans(), st.integers(1, 8), st.integers(1, 30), st.integers(1, 9))
def test_blocks_of_any_size_contain_the_same_pairs(folder, lines, mark, ends, pairs, block_bytes, blocks):
    source = mark + "\n".join(lines) + "\n" * (ends and bool(lines))
    count = source.count("\n") + (source != "" and not source.endswith("\n"))
    target = "".join(f"{number}\r\n" for number in range(count))
    files = write_files(folder, source.encode(), target.encode())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(parallel_files, "_BLOCK_BYTES", block_bytes)
        patched.setattr(parallel_files, "_COUNTED_BYTES", block_bytes * blocks)
        (pair_blocks,) = split([files], pairs, run_all)
    assume(files.is_splittable)  # Without line feeds, carriage returns end the lines.
    expected = list(read_pairs(files.source, files.target))
    assert [list(block) for block in pair_blocks] == [
        expected[at : at + pairs] for at in range(0, len(expected), pairs)
    ]


def test_each_corpus_starts_a_block_and_has_its_tag(tmp_path):
    first = ParallelFiles(tmp_path / "a.en", tmp_path / "a.de", "<2de>")
    second = ParallelFiles(tmp_path / "a.de", tmp_path / "a.en")
    write_files(tmp_path, b"1\n2\n3\n", b"eins\nzwei\ndrei\n")
    assert [[list(block) for block in blocks] for blocks in split([first, second], 2, run_all)] == [
        [[("<2de> 1", "eins"), ("<2de> 2", "zwei")], [("<2de> 3", "drei")]],
        [[("eins", "1"), ("zwei", "2")], [("drei", "3")]],
    ]
    assert list(first()) == [("<2de> 1", "eins"), ("<2de> 2", "zwei"), ("<2de> 3", "drei")]


def test_unequal_numbers_of_lines_are_an_error(tmp_path):
    with pytest.raises(InputError, match=rf"unequal numbers of lines: {tmp_path}/a\.en has 2, {tmp_path}/a\.de has 1"):
        split([write_files(tmp_path, b"1\n2\n", b"eins\n")], 9, run_all)


def test_an_invalid_or_missing_line_is_named(tmp_path):
    files = write_files(tmp_path, b"1\n2\n3\nvier\xff\n", b"1\n2\n3\n4\n")
    ((_, last),) = split([files], 2, run_all)
    with pytest.raises(InputError, match=r"a\.en, line 4: not valid UTF-8 \(byte 5: "):
        list(last)
    files.source.write_text("1\n2\n3\n")
    with pytest.raises(InputError, match=r"a\.en: line 4 is missing: the file was changed while it was read"):
        list(last)
    files.source.unlink()
    with pytest.raises(InputError, match=r"a\.en: cannot be read: No such file"):
        list(last)


def test_compressed_files_and_pipes_are_not_split(tmp_path):
    files = write_files(tmp_path, b"", b"")
    assert files.is_splittable
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "a.gz").touch()
    for name in ("pipe", "a.gz", "missing", "/dev/stdin"):
        pairs = itertools.permutations((files.source, tmp_path / name))
        assert not any(ParallelFiles(*paths).is_splittable for paths in pairs)

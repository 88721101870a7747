"""The texts that the classifier of words reads are those that a model gets."""

import bz2

import pytest

from benchmarks.text_classifier import read
from t2t_keras.errors import InputError


def test_lines_end_at_line_ends_alone(tmp_path):
    path = tmp_path / "a.tsv.bz2"
    path.write_bytes(bz2.compress("good\x85 film\tpos\nbad\u2028 one\tneg\n".encode()))
    assert read(str(path)) == (["good\x85 film", "bad\u2028 one"], ["pos", "neg"])
    (tmp_path / "b.tsv").write_text("no label\n")
    with pytest.raises(InputError, match="b.tsv, line 1: expected a text and its label"):
        read(str(tmp_path / "b.tsv"))

import pytest

from t2t_keras.errors import InputError
from t2t_keras.runs.run import RunCheckpoint


def test_parsing_a_run_and_a_checkpoint(tmp_path):
    assert RunCheckpoint.parse("runs/a") == ("runs/a", None)
    assert RunCheckpoint.parse("runs/a@best") == ("runs/a", "best")
    assert RunCheckpoint.parse("me@home/a@5000") == ("me@home/a", "5000")
    (tmp_path / "a@b").mkdir()
    assert RunCheckpoint.parse(str(tmp_path / "a@b")) == (str(tmp_path / "a@b"), None)
    for text in ("", "@best", "runs/a@"):
        with pytest.raises(InputError, match="MODEL_DIR@CHECKPOINT"):
            RunCheckpoint.parse(text)

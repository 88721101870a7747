"""The record of a fit keeps values between starts and rejects different settings."""

import pytest

from t2t_keras.errors import InputError
from t2t_keras.fitting.fit_record import FitRecord


def test_values_are_read_at_the_next_start(tmp_path):
    path = tmp_path / "run" / "fit.json"
    record = FitRecord(path)
    assert record["finished"] is None and not path.parent.exists()
    record.update(finished=True, minutes=1.5)
    record.update(finished=None)
    again = FitRecord(path)
    assert again["finished"] is None and again["minutes"] == 1.5
    assert [file.name for file in path.parent.iterdir()] == ["fit.json"]


def test_differences_are_named_and_not_stored(tmp_path):
    path = tmp_path / "fit.json"
    FitRecord(path).check_same("asked", {"source": "a.en", "text": "0" * 64}, tmp_path)
    FitRecord(path).check_same("asked", {"source": "a.en", "text": "0" * 64}, tmp_path)
    with pytest.raises(InputError) as rejected:
        FitRecord(path).check_same("asked", {"source": "b.en", "text": "1" * 64, "set": ["x"]}, tmp_path)
    changes = "set: None -> ['x'], source: 'a.en' -> 'b.en', text: 000000000000... -> 111111111111..."
    assert (
        str(rejected.value)
        == f"{tmp_path} was started with different data or choices ({changes}); use a different folder"
    )
    assert FitRecord(path)["asked"]["source"] == "a.en"


def test_a_damaged_record_is_an_error(tmp_path):
    (tmp_path / "fit.json").write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match=r"fit\.json is damaged"):
        FitRecord(tmp_path / "fit.json")

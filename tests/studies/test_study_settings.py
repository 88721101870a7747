"""The flags that a study stores."""

import os

import pytest

from t2t_keras.errors import InputError
from t2t_keras.studies.study_settings import StudySettings, read_settings, write_settings


def test_a_study_stores_its_first_settings(tmp_path):
    stored = read_settings(tmp_path, {"table": "3", "data_dir": "data", "steps": 7, "settings": ("a.b=c",)})
    assert stored == StudySettings("3", "tiny", os.path.abspath("data"), 7, 2, ("a.b=c",))
    write_settings(tmp_path / "study", stored)
    assert read_settings(tmp_path / "study", {}) == stored
    assert read_settings(tmp_path / "study", {"table": "3", "seeds": 4}).seeds == 4


def test_a_folder_belongs_to_one_table(tmp_path):
    write_settings(tmp_path, StudySettings("3"))
    for name, value in (("table", "2"), ("scale", "paper")):
        with pytest.raises(InputError, match=rf"holds the study with --{name}=\w+; use a different --study_dir"):
            read_settings(tmp_path, {name: value})


def test_a_new_study_needs_a_table(tmp_path):
    with pytest.raises(InputError, match="--table must be given to start a study in "):
        read_settings(tmp_path, {})


@pytest.mark.parametrize("text", ["{", "{}", '{"settings": [], "colour": 1}', "[]"])
def test_a_damaged_file_is_an_error(tmp_path, text):
    (tmp_path / "study.json").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"study\.json is damaged: "):
        read_settings(tmp_path, {"table": "3"})

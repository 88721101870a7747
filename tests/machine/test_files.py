"""JSON files and checksums."""

import pytest

from t2t_keras.errors import InputError
from t2t_keras.machine.files import read_json, sha256, write_json


def test_json_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "values.json"
    assert read_json(path) is None
    write_json(path, {"name": "Größe", "numbers": [1, 2.5, None]})
    assert read_json(path) == {"name": "Größe", "numbers": [1, 2.5, None]}
    assert "Größe" in path.read_text(encoding="utf-8") and [entry.name for entry in tmp_path.iterdir()] == [path.name]
    path.write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match=r"values\.json is damaged: "):
        read_json(path)


def test_a_checksum_is_that_of_the_contents(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    assert sha256(path) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

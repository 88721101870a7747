"""Lines of JSON that ask for translations."""

import pytest

from t2t_keras.inference import json_lines


@pytest.mark.parametrize("number", ["1e400", "[NaN]", '{"a": -1e400}'])
def test_an_id_that_json_cannot_repeat_is_refused(number):
    line = json_lines.parsed(3, f'{{"text": "A dog.", "id": {number}}}')
    assert (line.number, line.id) == (3, None) and "'id' contains a number that JSON cannot represent" in line.error


def test_other_ids_are_repeated():
    line = json_lines.parsed(1, '{"text": "A dog.", "id": {"a": [1, null, "\\ud800"]}}')
    assert line.id == {"a": [1, None, "\ud800"]}

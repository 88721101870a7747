"""Translation requests as lines of JSON."""

import pytest

from t2t_keras.inference import json_lines
from t2t_keras.inference.request import Request
from t2t_keras.inference.translation import TermUse, Translation


@pytest.mark.parametrize("number", ["1e400", "[NaN]", '{"a": -1e400}'])
def test_ids_with_invalid_numbers_are_rejected(number):
    line = json_lines.parsed(3, f'{{"text": "A dog.", "id": {number}}}')
    assert (line.number, line.id) == (3, None) and "'id' contains a number that JSON cannot represent" in line.error


def test_ids_are_returned():
    line = json_lines.parsed(1, '{"text": "A dog.", "id": {"a": [1, null, "\\ud800"]}}')
    assert line.id == {"a": [1, None, "\ud800"]}


def test_valid_lines_become_requests():
    line = json_lines.parsed(1, '{"text": "a", "prefix": "b", "constraints": ["c", ["d", "e"]], "excluded": ["f"]}')
    assert (line.error, line.request) == ("", Request("a", "b", ("c", ("d", "e")), ("f",)))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{'text': 'a'}", "not valid JSON: "),
        ("[" * 100_000, "not valid JSON: "),
        ("[1]", "expected a JSON object with 'text', got [1]"),
        ('{"id": 7, "text": "a", "prefx": "b"}', "unknown key 'prefx'; valid: text, prefix, constraints, excluded, id"),
        ('{"id": 7, "prefix": "a"}', "the key 'text' is missing"),
        ('{"id": 7, "text": 3}', "'text' must be a string, got 3"),
        ('{"id": 7, "text": "a", "prefix": null}', "'prefix' must be a string, got None"),
        (
            '{"id": 7, "text": "a", "constraints": "b"}',
            "'constraints' must be a list of strings or of lists of strings",
        ),
        ('{"id": 7, "text": "a", "constraints": [["b", 1]]}', "'constraints' must be a list"),
        ('{"id": 7, "text": "a", "excluded": [["b"]]}', "'excluded' must be a list of strings, got [['b']]"),
    ],
)
def test_invalid_lines_keep_their_id(text, error):
    line = json_lines.parsed(1, text)
    assert line.error.startswith(error) and (line.request, line.id) == ("", 7 if '"id"' in text else None)


def test_answers_contain_terms_and_hypotheses():
    uses = TermUse("dog", "", False, ("Hund",)), TermUse("man", "Mann", True, ("Mann",))
    row = [Translation("a", -1.23456789, -2.0, 3, terms=uses), Translation("b", -2.0, -3.0, 2)]
    terms = [{"source": "dog", "form": None, "forced": False}, {"source": "man", "form": "Mann", "forced": True}]
    first = {"translation": "a", "score": -1.234568, "log_prob": -2.0, "num_tokens": 3, "terms": terms}
    second = {"translation": "b", "score": -2.0, "log_prob": -3.0, "num_tokens": 2}
    assert json_lines.answers(None, [row]) == [first]
    assert json_lines.answers(None, [row], as_lists=True) == [{**first, "nbest": [first, second]}]

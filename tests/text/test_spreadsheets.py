"""Tables as text: quotes of spreadsheets, and quotes that belong to the text."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_keras.errors import InputError
from t2t_keras.text import spreadsheets
from t2t_keras.text.spreadsheets import comma_separated_rows, tab_separated_rows


def cells(text: str) -> list[list[str]]:
    return [row for _, row in tab_separated_rows(text.split("\n"))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"He said ""yes"""\tEr sagte', [['He said "yes"', "Er sagte"]]),
        ('"Yes."\tJa.', [['"Yes."', "Ja."]]),
        ('"Yes," he said.\t"Ja", sagte er.', [['"Yes," he said.', '"Ja", sagte er.']]),
        ('"Hello\t"Hallo\nyou"\tdu"', [['"Hello', '"Hallo'], ['you"', 'du"']]),
        ('a ""b"" c\t""', [['a ""b"" c', '""']]),
        ('"a\nb"\tc\nd\te', [["a\nb", "c"], ["d", "e"]]),
        ('a\t"b\nc ""d"""\nd\te', [["a", 'b\nc "d"'], ["d", "e"]]),
        ('a\t"b\nc" d\ne\tf', [["a", '"b'], ['c" d'], ["e", "f"]]),
        ('a\t"b\n\nc"\nd\te', [["a", "b\n\nc"], ["d", "e"]]),
        ('a\t"b', [["a", '"b']]),
        ('"a"\t"b"\n"c"\t"d"', [["a", "b"], ["c", "d"]]),
        ('"a"\t"b"\n"c"\td', [['"a"', '"b"'], ['"c"', "d"]]),
        ("a\t", [["a", ""]]),
        ("", [[""]]),
    ],
)
def test_quotes_of_spreadsheets_go_and_those_of_the_text_stay(text, expected):
    assert cells(text) == expected


def test_rows_have_the_numbers_of_their_first_lines():
    numbers = [number for number, _ in tab_separated_rows(['"a', 'b"\tc', "d\te"])]
    assert numbers == [1, 3]


def test_rows_after_the_sample_follow_it(monkeypatch):
    monkeypatch.setattr(spreadsheets, "_SAMPLE_ROWS", 2)
    assert cells("a\nb\nc\nd") == [["a"], ["b"], ["c"], ["d"]]


# A quote makes a spreadsheet quote the cell; without that, a cell that consists of quoted words is ambiguous.
WORDS = st.text(alphabet='ab ".,;', max_size=12).filter(lambda text: not (text.startswith('"') and text.endswith('"')))


@given(st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=5))
def test_rows_written_by_a_spreadsheet_are_read(rows):
    """In the dialect of spreadsheets, cells with tabs, quotes or line breaks are quoted."""
    file = io.StringIO()
    csv.writer(file, "excel-tab", lineterminator="\n").writerows(rows)
    assert cells(file.getvalue().removesuffix("\n")) == [list(row) for row in rows]
    file = io.StringIO()
    csv.writer(file, delimiter=",", lineterminator="\n").writerows(rows)
    actual = [row for _, row in comma_separated_rows(["source,target", *file.getvalue().split("\n")[:-1]], "a.csv")]
    assert actual[1:] == [list(row) for row in rows]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["a, b;c", "d;e, f"], [["a, b", "c"], ["d", "e, f"]]),
        (["a;b,c", "d;e,f"], [["a;b", "c"], ["d;e", "f"]]),
        (["sep=|", "a, b|c, d"], [["a, b", "c, d"]]),
        (['"a;b","c', 'd"', "", "e,f"], [["a;b", "c\nd"], ["e", "f"]]),
        (["a\tb"], [["a", "b"]]),
    ],
)
def test_the_delimiter_is_that_of_the_first_rows(lines, expected):
    assert [row for _, row in comma_separated_rows(lines, "a.csv")] == expected


def test_a_row_of_another_width_is_named():
    with pytest.raises(InputError, match=r"^a\.csv, line 4: 3 cells separated by ',', but 2 in the first row"):
        list(comma_separated_rows(["a,b", '"c', 'd",e', "f,g,h"], "a.csv"))

"""Targets get the final full stop of their source."""

import pytest

from t2t_keras.text.final_marks import with_final_mark_of


@pytest.mark.parametrize(
    ("source", "target", "language", "expected"),
    [
        ("A dog", "Ein Hund.", "de", "Ein Hund"),
        ("(A dog)", "(Ein Hund.)", "de", "(Ein Hund)"),
        ("A dog", "犬。", "ja", "犬"),
        ("A dog", "Ein Hund!", "de", "Ein Hund!"),
        ("A dog", "Ein Hund...", "de", "Ein Hund..."),
        ("America", "Die U.S.A.", "de", "Die U.S.A."),
        ("A dog?", "Ein Hund.", "de", "Ein Hund."),
        ("“A dog!”", "Ein Hund.", "de", "Ein Hund."),
        ("A dog.", "Ein Hund", "de", "Ein Hund."),
        ("A dog!", "Ein Hund", "de", "Ein Hund"),
        ("A dog...", "Ein Hund", "de", "Ein Hund"),
        ("A dog.", "Ein Hund?", "de", "Ein Hund?"),
        ("A dog.", "Ein Hund:", "de", "Ein Hund:"),
        ("A dog.", "", "de", ""),
        ("5 %.", "5 %", "de", "5 %."),
        ("“A dog.”", "„Ein Hund“", "de", "„Ein Hund.“"),
        ("A “dog”.", "Ein „Hund“", "de", "Ein „Hund“."),
        ("Run Python.", "运行 Python", "zh", "运行 Python。"),
        ("A dog.", "कुत्ता", "hi", "कुत्ता।"),
        ("A dog.", "สุนัข", "th", "สุนัข"),
        ("犬。", "A dog", "en", "A dog."),
    ],
)
def test_a_full_stop_is_removed_or_added(source, target, language, expected):
    assert with_final_mark_of(source, target, language) == expected

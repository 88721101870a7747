import pytest

from benchmarks.plain_text import EMOJI, forms, scores
from t2t_keras.text.language_codes import Languages

SOURCES = ["A man in a hat runs.", "I'm here, too.", "Two dogs run."]
REFERENCES = ["Ein Mann mit Hut rennt.", "Ich bin auch hier.", "Zwei Hunde rennen."]


@pytest.fixture(scope="module")
def by_name():
    return forms(SOURCES, REFERENCES, Languages("en", "de"))


def test_each_line_has_an_emoji_or_capitals(by_name):
    assert by_name["emoji"].sources == [
        f"{EMOJI[0]} {SOURCES[0]}",
        f"I'm {EMOJI[1]} here, too.",
        f"{SOURCES[2]} {EMOJI[2]}",
    ]
    assert by_name["capitals"][:2] == ([line.upper() for line in SOURCES], [line.upper() for line in REFERENCES])
    assert by_name["title case"].sources[0] == "A Man In A Hat Runs."


def test_scores_ignore_emoji_and_report_lost_ones(by_name):
    translations = [f"{emoji} {line}" for emoji, line in zip(EMOJI, REFERENCES, strict=False)]
    assert scores(by_name["emoji"], translations, "de") == ["100.0", "100.0", "100.0 %"]
    assert scores(by_name["emoji"], [REFERENCES[0], *translations[1:]], "de") == ["100.0", "100.0", "66.7 %"]
    cased, lowercased, share = scores(by_name["capitals"], REFERENCES, "de")
    assert (float(cased) < 10, lowercased, share) == (True, "100.0", "")

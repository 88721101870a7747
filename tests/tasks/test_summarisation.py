"""ROUGE scores, and the files of summarisation."""

import pytest

from t2t_keras.errors import InputError
from t2t_keras.tasks.registry import task
from t2t_keras.tasks.task import ScoringSettings

SUMMARIES = task("summarisation")


def values(hypotheses, references, language=""):
    scores = SUMMARIES.scores(hypotheses, references, ScoringSettings(language))
    return {score.name: score.value for score in scores}


def test_rouge():
    actual = values(["The cats sat down", "nothing"], ["a cat sat here, down", "x"])
    # Stemmed: "the cat sat down" and "a cat sat here down". 3 words match, of 4 and of 5; 1 pair, of 3 and of 4; the
    # longest common subsequence has 3 words. The second line has no match.
    expected = {"ROUGE-1": 2 * 3 / 9, "ROUGE-2": 2 * 1 / 7, "ROUGE-L": 2 * 3 / 9}
    assert actual == pytest.approx({name: 100 * value / 2 for name, value in expected.items()})


def test_other_languages_have_letters_too():
    assert values(["кот спит"], ["Кот спит"], "en")["ROUGE-1"] == 0
    assert values(["кот спит"], ["Кот спит"], "ru")["ROUGE-1"] == 100
    assert values(["Katzen"], ["Katze"], "de")["ROUGE-L"] == 0
    assert values(["the cats"], ["the cat"], "en_GB")["ROUGE-L"] == 100


def test_without_a_language_the_references_show_it():
    assert values(["кот спит"], ["Кот спит"], "")["ROUGE-1"] == 100
    assert values(["the cats"], ["the cat"], "")["ROUGE-1"] == 100
    # Chinese has no spaces: three of four characters match.
    for language in ("", "zh"):
        assert values(["狗在睡觉"], ["猫在睡觉"], language)["ROUGE-1"] == pytest.approx(75)


def test_files_have_two_columns():
    assert list(SUMMARIES.examples(["a\tb", "c\td\te"], "f")) == [("a", "b"), ("c", "d")]
    with pytest.raises(InputError, match="f, line 2: expected source and target separated by a tab"):
        list(SUMMARIES.examples(["a\tb", "c"], "f"))


def test_vowel_signs_are_parts_of_words():
    assert values(["दिल की बात"], ["दाल को बीत"], "hi")["ROUGE-1"] == 0
    assert values(["cafe\u0301 二人"], ["caf\u00e9 二犬"], "fr")["ROUGE-1"] == pytest.approx(200 / 3)


def test_training_is_monitored_by_rouge_l_in_its_language():
    assert SUMMARIES.metric == "rouge_l" and SUMMARIES.monitored(["a b"], ["a c"]) == pytest.approx(50)
    assert [SUMMARIES.monitored(["cats"], ["cat"], language) for language in ("de", "en")] == [0, 100]

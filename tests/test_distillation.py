"""Choosing hypotheses for distillation."""

import pytest
import sacrebleu

from t2t_keras.distillation import nearest
from t2t_keras.inference.translation import Translation

REFERENCE = "Two dogs play in the deep snow."


def choose(*hypotheses: tuple[str, float], reference: str = REFERENCE, language: str = "en") -> str:
    """The hypothesis that is chosen for the second of two lines."""
    lists = [[Translation("A line.", -1.0)], [Translation(text, score) for text, score in hypotheses]]
    first, second = nearest(lists, ["A line before.", reference], language)
    assert first.text == "A line."
    return second.text


def test_nearest_hypothesis_has_the_highest_sentence_bleu() -> None:
    """The choice uses the BLEU of sacreBLEU, and not the score, the first position or the number of equal words."""
    texts = ["Two dogs are playing.", "Snow, deep, the in play dogs two.", "Two dogs play in deep snow.", "Two cats."]
    expected = max(texts, key=lambda text: sacrebleu.sentence_bleu(text, [REFERENCE]).score)
    assert expected == texts[2]
    assert choose(*zip(texts, (-1.0, -2.0, -3.0, -4.0), strict=True)) == expected
    # Without smoothing or effective order, both scores would be 0.
    assert choose(("Cats sleep.", -1.0), ("Two dogs.", -2.0)) == "Two dogs."


def test_ties_are_resolved_by_score() -> None:
    assert choose(("No word.", -3.0), ("Not one.", -1.0), ("Nothing.", -2.0)) == "Not one."
    assert choose((REFERENCE, -2.0), (REFERENCE[:-1], -1.0), reference="") == REFERENCE[:-1]


@pytest.mark.parametrize("language", ["zh", "zh_TW"])
def test_bleu_uses_the_tokenizer_of_the_language(language) -> None:
    """For the tokenizer of other languages, each line is one word, so all scores are 0."""
    near, far = "他在图书馆里写书。", "我去。"
    assert choose((far, -1.0), (near, -2.0), reference="他在图书馆里看书。", language=language) == near
    assert choose((far, -1.0), (near, -2.0), reference="他在图书馆里看书。", language="de") == far

"""The choice among hypotheses."""

import pytest
import sacrebleu

from t2t_keras.distillation import nearest
from t2t_keras.inference.translation import Translation

REFERENCE = "Two dogs play in the deep snow."


def chosen(*hypotheses: tuple[str, float], reference: str = REFERENCE, language: str = "en") -> str:
    """The hypothesis that is chosen beside a line with a single one."""
    lists = [[Translation("A line.", -1.0)], [Translation(text, score) for text, score in hypotheses]]
    first, second = nearest(lists, ["A line before.", reference], language)
    assert first.text == "A line."
    return second.text


def test_the_nearest_has_the_highest_sentence_bleu() -> None:
    """As sacreBLEU computes it, and not the best score, the first place or the most equal words."""
    texts = ["Two dogs are playing.", "Snow, deep, the in play dogs two.", "Two dogs play in deep snow.", "Two cats."]
    expected = max(texts, key=lambda text: sacrebleu.sentence_bleu(text, [REFERENCE]).score)
    assert expected == texts[2]
    assert chosen(*zip(texts, (-1.0, -2.0, -3.0, -4.0), strict=True)) == expected
    # Without smoothing or effective order, both would have 0.
    assert chosen(("Cats sleep.", -1.0), ("Two dogs.", -2.0)) == "Two dogs."


def test_equally_near_ones_are_chosen_by_score() -> None:
    assert chosen(("No word.", -3.0), ("Not one.", -1.0), ("Nothing.", -2.0)) == "Not one."
    assert chosen((REFERENCE, -2.0), (REFERENCE[:-1], -1.0), reference="") == REFERENCE[:-1]


@pytest.mark.parametrize("language", ["zh", "zh_TW"])
def test_words_are_those_of_the_language(language) -> None:
    """To the tokeniser of other languages each line is a single word, and none is near."""
    near, far = "他在图书馆里写书。", "我去。"
    assert chosen((far, -1.0), (near, -2.0), reference="他在图书馆里看书。", language=language) == near
    assert chosen((far, -1.0), (near, -2.0), reference="他在图书馆里看书。", language="de") == far

"""Scores of translations, and their names."""

import pytest
import sacrebleu.metrics

from t2t_keras.errors import InputError
from t2t_keras.tasks import translation_scores
from t2t_keras.tasks.translation_scores import (
    bleu,
    lowercased_scores,
    paper_bleu_score,
    sacrebleu_scores,
    sentence_chrf,
    split_compounds,
)


def test_the_language_is_that_of_references():
    """Outputs in another language are wrong, but do not change the scoring."""
    actual = sacrebleu_scores(["他在图书馆里看书。"], ["He reads in the library."])[0]
    assert (
        "tok:13a" in actual.signature
        and "tok:zh" in sacrebleu_scores(["He reads."], ["他在图书馆里看书。"])[0].signature
    )


@pytest.mark.parametrize(
    ("language", "reference", "hypothesis", "tokenizer"),
    [
        ("zh", "他在图书馆里看书。", "他在图书馆里写书。", "tok:zh"),
        ("ja", "私は図書館で本を読みます。", "私は図書館で本を書きます。", "tok:ja-mecab"),
        ("ko", "나는 도서관에서 책을 읽는다.", "나는 도서관에서 책을 쓴다.", "tok:ko-mecab"),
    ],
)
def test_languages_without_spaces_between_words(language, reference, hypothesis, tokenizer):
    """The tokenizer 13a would treat each line as one word or a few, so that a single wrong verb gives a score of 0."""
    references, hypotheses = [reference] * 2, [hypothesis, reference]
    expected = sacrebleu.metrics.BLEU(trg_lang=language).corpus_score(hypotheses, [references]).score
    for language_setting in (language, f"{language.upper()}_XX", None):
        actual = sacrebleu_scores(hypotheses, references, language_setting)[0]
        assert tokenizer in actual.signature
        assert actual.value == bleu(hypotheses, references, language_setting) == pytest.approx(expected)
    assert expected > 60
    assert "tok:13a" in sacrebleu_scores(hypotheses, references, "de")[0].signature
    (lowercased,) = lowercased_scores(hypotheses, references, language)
    assert tokenizer in lowercased.signature and "case:lc" in lowercased.signature
    with pytest.raises(InputError, match=f"words of the Moses tokenizer, which has no rules for '{language}'"):
        paper_bleu_score(hypotheses, references, language)


def test_tokenised_lowercased_bleu():
    # Tokens "a b c d e" and "a b c d f": precisions 4/5, 3/4, 2/3, 1/2.
    (cased, tokenised) = lowercased_scores(["A b C d e"], ["a B c d f"], "en")
    assert tokenised.value == pytest.approx(100 * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25)
    assert cased.value == pytest.approx(tokenised.value)
    assert "case:lc" in cased.signature
    assert tokenised.signature.startswith("moses:en+lowercase|") and "tok:none" in tokenised.signature
    assert sacrebleu_scores(["A b C d e"], ["a B c d f"])[0].value < tokenised.value


def test_tokenised_bleu_is_not_smoothed():
    """As in multi-bleu.perl, the score is 0 without a matching 4-gram."""
    _, tokenised = lowercased_scores(["a b c x d e"], ["a b c y d e"], "en")
    assert tokenised.value == pytest.approx(0, abs=1e-6)


def test_moses_tokens_are_those_of_the_language_before_it_is_lowercased():
    """The full stop and the comma are tokens: 7 tokens, of which the last differs."""
    _, tokenised = lowercased_scores(["a, b c d e!"], ["a, b c d e."], "en")
    assert tokenised.value == pytest.approx(100 * (6 / 7 * 5 / 6 * 4 / 5 * 3 / 4) ** 0.25)
    # Moses treats "No." as an abbreviation, and "no." as the end of a sentence.
    cased, tokenised = lowercased_scores(["see no. 5 there now"], ["See No. 5 there now"], "en")
    assert cased.value == pytest.approx(100) and tokenised.value < 70
    lines = ["L'homme n'est pas l'ami d'un ami.", "Il n'y a qu'une dog."], ["L'homme est l'ami.", "Il y a un dog."]
    assert lowercased_scores(*lines, "fr_FR")[1] == lowercased_scores(*lines, "fr")[1]
    assert split_compounds("a-b-c") == "a ##AT##-##AT## b-c", "the paper's evaluation did the same"


def test_a_language_unknown_to_moses_is_reported(caplog):
    paper_bleu_score(["a b c d"], ["a b c d"], "de")
    assert not caplog.text
    paper_bleu_score(["a b c d"], ["a b c d"], "tlh")
    assert "Moses has no rules for 'tlh': words are split as in English" in caplog.text


def test_paper_bleu_splits_compounds():
    hypothesis, reference = ["der rot-blaue Ball liegt hier"], ["der rot-gelbe Ball liegt hier"]
    paper = paper_bleu_score(hypothesis, reference, "de")
    # "der rot @ blaue Ball liegt hier": 6 of 7 words, 4 of 6 pairs, 2 of 5 triples (der rot @, Ball liegt hier) and no
    # 4-gram match.
    assert paper.value == pytest.approx(0, abs=1e-6)
    longer = [line + " auf dem Tisch" for line in hypothesis], [line + " auf dem Tisch" for line in reference]
    paper = paper_bleu_score(*longer, "de")
    assert paper.value == pytest.approx(100 * (9 / 10 * 7 / 9 * 5 / 8 * 3 / 7) ** 0.25)
    assert paper.signature.startswith("moses:de+punctuation+compounds|") and "not sacreBLEU" in paper.comparable_to


def test_paper_bleu_replaces_unicode_punctuation_as_the_authors_script_does():
    straight, curly = ["""der "Ball" ist's, der dort liegt..."""], ["der “Ball” ist’s, der dort liegt…"]
    paper = paper_bleu_score(straight, curly, "de")
    assert paper.value == pytest.approx(100)
    assert paper.signature.startswith("moses:de+punctuation+compounds|")
    assert paper_bleu_score(curly, straight, "de").value == pytest.approx(100)
    assert sacrebleu_scores(straight, curly, "de")[0].value < 60, "other scores must not replace punctuation"


@pytest.mark.parametrize("lines", [([], []), (["a"], []), (["a"], ["a", "b"])])
def test_lines_must_match(lines):
    for call in (
        sacrebleu_scores,
        lambda *sides: lowercased_scores(*sides, "en"),
        lambda *sides: paper_bleu_score(*sides, "en"),
    ):
        with pytest.raises(InputError, match="lines"):
            call(*lines)


def test_chrf_of_each_sentence_tells_good_from_bad():
    references = ["ein Hund läuft", "ein Haus", "die Katze schläft"]
    scores = sentence_chrf(["ein Hund läuft", "qqq", "die Katze rennt"], references)
    assert scores[0] == pytest.approx(100) and scores[1] == 0 and 0 < scores[2] < 100
    with pytest.raises(InputError, match="the text to evaluate has no lines"):
        sentence_chrf([], [])


def test_without_its_tokeniser_bleu_is_of_characters(monkeypatch):
    def missing(language, **settings):
        raise InputError("not installed")

    monkeypatch.setattr(translation_scores, "_bleu_metric", missing)
    references, hypotheses = ["私は図書館で本を読みます。"], ["私は図書館で本を書きます。"]
    expected = sacrebleu.metrics.BLEU(tokenize="char").corpus_score(hypotheses, [references]).score
    assert bleu(hypotheses, references) == pytest.approx(expected) and expected > 60


def test_the_paired_bootstrap_tells_a_difference_from_chance():
    references = [f"der Mann {number} geht heute in das Haus" for number in range(60)]
    worse = [line.replace("heute", "gestern") if number % 2 else line for number, line in enumerate(references)]
    other = [line.replace("heute", "gestern") if number % 2 == 0 else line for number, line in enumerate(references)]
    difference, p_value = translation_scores.paired_bootstrap(worse, references, references, "de")
    assert difference == pytest.approx(100 - translation_scores.bleu(worse, references, "de"))
    assert p_value < 0.01
    assert translation_scores.paired_bootstrap(references, worse, references, "de")[0] == -difference
    difference, p_value = translation_scores.paired_bootstrap(worse, other, references, "de")
    assert difference == pytest.approx(0, abs=1e-6) and p_value > 0.2
    with pytest.raises(InputError, match="unequal numbers of lines"):
        translation_scores.paired_bootstrap(worse[1:], references, references, "de")

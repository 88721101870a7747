"""Scores by hand, names that say what they are, perplexity against NumPy, files."""

import dataclasses
import json
import math

import numpy as np
import pytest
import sacrebleu.metrics
import tensorflow as tf
import tiny
from sacrebleu.tokenizers import tokenizer_ja_mecab

from t2t_keras import evaluation
from t2t_keras.config import DecodeConfig
from t2t_keras.errors import InputError
from t2t_keras.inference.translator import Translator
from t2t_keras.models.contract import States
from t2t_keras.symbols import EOS_ID

REFERENCES = ["Ein Mann, der auf einer Leiter steht.", "Zwei Hunde spielen im tiefen Schnee."]


def by_name(scores: list[evaluation.Score]) -> dict[str, evaluation.Score]:
    return {score.name: score for score in scores}


def test_perfect_hypotheses():
    scores = by_name(evaluation.sacrebleu_scores(REFERENCES, REFERENCES))
    assert scores["BLEU"].value == pytest.approx(100)
    assert scores["chrF"].value == pytest.approx(100)
    assert scores["TER"].value == 0
    assert "case:mixed" in scores["BLEU"].signature and "tok:13a" in scores["BLEU"].signature


@pytest.mark.parametrize(
    ("language", "reference", "hypothesis", "tokenizer"),
    [
        ("zh", "他在图书馆里看书。", "他在图书馆里写书。", "tok:zh"),
        ("ja", "私は図書館で本を読みます。", "私は図書館で本を書きます。", "tok:ja-mecab"),
        ("ko", "나는 도서관에서 책을 읽는다.", "나는 도서관에서 책을 쓴다.", "tok:ko-mecab"),
    ],
)
def test_words_that_no_blanks_separate(language, reference, hypothesis, tokenizer):
    """To 13a each line is one word or few, and a translation with one wrong verb is worth nothing."""
    references, hypotheses = [reference] * 2, [hypothesis, reference]
    expected = sacrebleu.metrics.BLEU(trg_lang=language).corpus_score(hypotheses, [references]).score
    for given in (language, f"{language.upper()}_XX", None):
        found = evaluation.sacrebleu_scores(hypotheses, references, given)[0]
        assert tokenizer in found.signature
        assert found.value == evaluation.bleu(hypotheses, references, given) == pytest.approx(expected)
    assert expected > 60
    assert "tok:13a" in evaluation.sacrebleu_scores(hypotheses, references, "de")[0].signature
    (lowercased,) = evaluation.lowercased_scores(hypotheses, references, language)
    assert tokenizer in lowercased.signature and "case:lc" in lowercased.signature
    with pytest.raises(InputError, match=f"words between blanks, of which '{language}' has none"):
        evaluation.paper_bleu_score(hypotheses, references, language)


class UntouchedTranslator:
    def translate(self, *arguments, **options):
        pytest.fail("translated")


def test_a_missing_tokeniser_is_told_before_anything_is_translated(monkeypatch, caplog):
    monkeypatch.setattr(tokenizer_ja_mecab, "MeCab", None)
    references = ["私は図書館で本を読みます。"]
    message = r"target language 'ja' needs a tokeniser that is not installed: pip install 'sacrebleu\[ja\]'"
    with pytest.raises(InputError, match=message):
        evaluation.evaluate(UntouchedTranslator(), references, references)
    with pytest.raises(InputError, match=message):
        evaluation.sacrebleu_scores(references, references)
    # A training goes on.
    assert evaluation.bleu(["私は図書館で本を書きます。"], references) > 50
    assert "BLEU is computed on characters" in caplog.text


def test_what_cannot_be_scored_is_told_before_anything_is_translated():
    with pytest.raises(InputError, match="the paper's BLEU"):
        evaluation.evaluate(UntouchedTranslator(), ["a"], ["他在图书馆里看书。"], paper_bleu=True)


def test_tokenised_lowercased_bleu_by_hand():
    # Tokens "a b c d e" and "a b c d f": precisions 4/5, 3/4, 2/3, 1/2.
    (cased, tokenised) = evaluation.lowercased_scores(["A b C d e"], ["a B c d f"], "en")
    assert tokenised.value == pytest.approx(100 * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25)
    assert cased.value == pytest.approx(tokenised.value)
    assert "case:lc" in cased.signature
    assert tokenised.signature.startswith("moses:en+lowercase|") and "tok:none" in tokenised.signature
    assert evaluation.sacrebleu_scores(["A b C d e"], ["a B c d f"])[0].value < tokenised.value


def test_tokenised_bleu_is_not_smoothed():
    """As multi-bleu.perl: without a matching 4-gram it is 0."""
    _, tokenised = evaluation.lowercased_scores(["a b c x d e"], ["a b c y d e"], "en")
    assert tokenised.value == pytest.approx(0, abs=1e-6)


def test_moses_tokens():
    """Full stop and comma are tokens of their own: of 7, the last does not match."""
    _, tokenised = evaluation.lowercased_scores(["a, b c d e!"], ["a, b c d e."], "en")
    assert tokenised.value == pytest.approx(100 * (6 / 7 * 5 / 6 * 4 / 5 * 3 / 4) ** 0.25)


def test_split_compounds():
    assert evaluation.split_compounds("rot-blau , - x") == "rot ##AT##-##AT## blau , - x"
    assert evaluation.split_compounds("E-Mail-Adresse") == "E ##AT##-##AT## Mail ##AT##-##AT## Adresse"
    assert evaluation.split_compounds("a-b-c") == "a ##AT##-##AT## b-c", "as the paper's evaluation did"


def test_paper_bleu_splits_compounds():
    hypothesis, reference = ["der rot-blaue Ball liegt hier"], ["der rot-gelbe Ball liegt hier"]
    paper = evaluation.paper_bleu_score(hypothesis, reference, "de")
    # der rot @ blaue Ball liegt hier: 6 of 7, 4 of 6, 2 of 5 (der rot @, Ball liegt hier); no 4-gram is right.
    assert paper.value == pytest.approx(0, abs=1e-6)
    longer = [line + " auf dem Tisch" for line in hypothesis], [line + " auf dem Tisch" for line in reference]
    paper = evaluation.paper_bleu_score(*longer, "de")
    assert paper.value == pytest.approx(100 * (9 / 10 * 7 / 9 * 5 / 8 * 3 / 7) ** 0.25)
    assert paper.signature.startswith("moses:de+punctuation+compounds|") and "not sacreBLEU" in paper.comparable_to


def test_paper_bleu_replaces_unicode_punctuation_as_the_authors_script_does():
    straight, curly = ["""der "Ball" ist's, der dort liegt..."""], ["der “Ball” ist’s, der dort liegt…"]
    paper = evaluation.paper_bleu_score(straight, curly, "de")
    assert paper.value == pytest.approx(100)
    assert paper.signature.startswith("moses:de+punctuation+compounds|")
    assert evaluation.paper_bleu_score(curly, straight, "de").value == pytest.approx(100)
    assert evaluation.sacrebleu_scores(straight, curly, "de")[0].value < 60, "nothing is replaced elsewhere"


@pytest.mark.parametrize("lines", [([], []), (["a"], []), (["a"], ["a", "b"])])
def test_lines_must_match(lines):
    translator = Translator(tiny.tokenizer(), tiny.CopyModel(tiny.tokenizer().vocab_size))
    for call in (
        lambda: evaluation.sacrebleu_scores(*lines),
        lambda: evaluation.lowercased_scores(*lines, "en"),
        lambda: evaluation.paper_bleu_score(*lines, "en"),
        lambda: evaluation.corpus_cross_entropy(None, tiny.tokenizer(), *lines),
        lambda: evaluation.evaluate(translator, *lines),
    ):
        with pytest.raises(InputError, match="lines"):
            call()


def test_cross_entropy_equals_one_by_one():
    tokenizer, model = tiny.tokenizer(), tiny.transformer()
    sources, targets = tiny.SENTENCES, [*tiny.SENTENCES[1:], ""]
    total, count = evaluation.corpus_cross_entropy(model, tokenizer, sources, targets, tokens_per_batch=90)
    expected_total, expected_count = 0.0, 0
    for source, target in zip(sources, targets, strict=True):
        source_ids, target_ids = [*tokenizer.encode(source), EOS_ID], [*tokenizer.encode(target), EOS_ID]
        inputs = {"source": np.array([source_ids]), "target": np.array([target_ids])}
        logits = np.asarray(model(inputs, training=False), np.float64)[0]
        log_probs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        expected_total -= log_probs[np.arange(len(target_ids)), target_ids].sum()
        expected_count += len(target_ids)
    assert count == expected_count
    assert total == pytest.approx(expected_total, rel=1e-5)
    assert evaluation.perplexity((total, count)) == pytest.approx(math.exp(total / count))


def test_perplexity_of_a_uniform_model_is_its_vocabulary():
    class Uniform:
        def states(self, inputs, training):
            return States(tf.zeros([*tf.unstack(tf.shape(inputs["target"])), 1]), tf.zeros([]))

        def logits(self, hidden):
            return tf.zeros([tf.shape(hidden)[0], 350])

    result = evaluation.corpus_cross_entropy(Uniform(), tiny.tokenizer(), tiny.SENTENCES, tiny.SENTENCES)
    assert evaluation.perplexity(result) == pytest.approx(350, rel=1e-4)
    assert evaluation.perplexity((1e9, 1)) == math.inf


def test_overlong_reference_is_cut(monkeypatch):
    monkeypatch.setattr(evaluation, "MAX_CROSS_ENTROPY_LENGTH", 6)
    _, count = evaluation.corpus_cross_entropy(tiny.transformer(), tiny.tokenizer(), ["A man"], ["dog " * 1000])
    assert count == 6


def test_evaluate_and_write(tmp_path):
    tokenizer = tiny.tokenizer()
    translator = Translator(tokenizer, tiny.CopyModel(tokenizer.vocab_size), DecodeConfig(beam_size=1))
    sources = [*tiny.SENTENCES, "dog " * 300]
    result = evaluation.evaluate(translator, sources, sources, "de", lowercase=True, paper_bleu=True)
    result = dataclasses.replace(result, perplexity=4.5)
    assert result.hypotheses == [source.strip() for source in sources]
    assert result.num_long_lines == 1
    assert by_name(result.scores)["BLEU"].value == pytest.approx(100)
    assert len(result.scores) == 6
    assert result.num_tokens > 0 and result.tokens_per_second > 0

    hypotheses_path, scores_path = evaluation.write_evaluation(tmp_path / "new" / "folder", result, {"beam_size": 1})
    assert hypotheses_path.read_text(encoding="utf-8").split("\n") == [*result.hypotheses, ""]
    written = json.loads(scores_path.read_text(encoding="utf-8"))
    assert written["perplexity"] == 4.5 and written["settings"] == {"beam_size": 1}
    assert written["scores"][0]["name"] == "BLEU" and written["num_long_lines"] == 1
    assert sorted(path.name for path in scores_path.parent.iterdir()) == ["hypotheses.txt", "scores.json"]

"""Scores by hand, names that say what they are, perplexity against NumPy, files."""

import json
import math
import pathlib
import sys

import numpy as np
import pytest
import tensorflow as tf

sys.path.append(str(pathlib.Path(__file__).parent / "decoding"))

import tiny

from t2t_keras import evaluation
from t2t_keras.config import EOS_ID, DecodeConfig
from t2t_keras.decoding.translator import Translator
from t2t_keras.errors import InputError

REFERENCES = ["Ein Mann, der auf einer Leiter steht.", "Zwei Hunde spielen im tiefen Schnee."]


def by_name(scores: list[evaluation.Score]) -> dict[str, evaluation.Score]:
    return {score.name: score for score in scores}


def test_perfect_hypotheses():
    scores = by_name(evaluation.sacrebleu_scores(REFERENCES, REFERENCES))
    assert scores["BLEU"].value == pytest.approx(100)
    assert scores["chrF"].value == pytest.approx(100)
    assert scores["TER"].value == 0
    assert "case:mixed" in scores["BLEU"].signature and "tok:13a" in scores["BLEU"].signature


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
    assert paper.signature.startswith("moses:de+compounds|") and "not sacreBLEU" in paper.comparable_to


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
    def uniform(inputs, training):
        return tf.zeros([*tf.unstack(tf.shape(inputs["target"])), 350])

    result = evaluation.corpus_cross_entropy(uniform, tiny.tokenizer(), tiny.SENTENCES, tiny.SENTENCES)
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
    result = evaluation.evaluate(translator, sources, sources, "de", True, True, perplexity=4.5)
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

"""Errors before translation, perplexity compared with NumPy, and files."""

import dataclasses
import json
import math

import numpy as np
import pytest
import tensorflow as tf
from sacrebleu.tokenizers import tokenizer_ja_mecab

from t2t_keras import evaluation
from t2t_keras.config import DecodeConfig
from t2t_keras.errors import InputError
from t2t_keras.inference.request import Request
from t2t_keras.inference.translator import Translator
from t2t_keras.models.contract import States
from t2t_keras.symbols import EOS_ID
from t2t_keras.tasks.registry import task
from t2t_keras.tasks.task import ScoringSettings
from t2t_keras.tasks.translation_scores import bleu, sacrebleu_scores
from tests.inference import tiny


class UntouchedTranslator:
    task = task("translation")

    def translate(self, *arguments, **options):
        pytest.fail("translated")


def test_missing_tokenizers_are_reported_before_translation(monkeypatch, caplog):
    monkeypatch.setattr(tokenizer_ja_mecab, "MeCab", None)
    references = ["私は図書館で本を読みます。"]
    message = r"target language 'ja' needs a tokenizer that is not installed: pip install 'sacrebleu\[ja\]'"
    with pytest.raises(InputError, match=message):
        evaluation.evaluate(UntouchedTranslator(), references, references)
    with pytest.raises(InputError, match=message):
        sacrebleu_scores(references, references)
    # Training continues.
    assert bleu(["私は図書館で本を書きます。"], references) > 50
    assert "BLEU is computed on characters" in caplog.text


def test_unsupported_scores_are_reported_before_translation():
    with pytest.raises(InputError, match="the paper's BLEU"):
        evaluation.evaluate(UntouchedTranslator(), ["a"], ["他在图书馆里看书。"], ScoringSettings(paper_bleu=True))


def test_cross_entropy_does_not_depend_on_the_batch():
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


def test_perplexity_of_a_uniform_model_is_the_vocabulary_size():
    class Uniform:
        def states(self, inputs, training):
            return States(tf.zeros([*tf.unstack(tf.shape(inputs["target"])), 1]), tf.zeros([]))

        def logits(self, hidden):
            return tf.zeros([tf.shape(hidden)[0], 350])

    result = evaluation.corpus_cross_entropy(Uniform(), tiny.tokenizer(), tiny.SENTENCES, tiny.SENTENCES)
    assert evaluation.perplexity(result) == pytest.approx(350, rel=1e-4)
    assert evaluation.perplexity((1e9, 1)) == math.inf
    assert math.isnan(evaluation.perplexity((math.nan, 1)))


def test_overlong_references_are_truncated(monkeypatch):
    monkeypatch.setattr(evaluation, "MAX_CROSS_ENTROPY_LENGTH", 6)
    _, count = evaluation.corpus_cross_entropy(tiny.transformer(), tiny.tokenizer(), ["A man"], ["dog " * 1000])
    assert count == 6


def test_evaluate_and_write(tmp_path):
    tokenizer = tiny.tokenizer()
    translator = Translator(tokenizer, tiny.CopyModel(tokenizer.vocab_size), DecodeConfig(beam_size=1))
    sources = [*tiny.SENTENCES, "dog " * 300]
    result = evaluation.evaluate(translator, sources, sources, ScoringSettings("de", lowercase=True, paper_bleu=True))
    result = dataclasses.replace(result, perplexity=4.5)
    assert result.hypotheses == [source.strip() for source in sources]
    assert (result.num_long_lines, result.num_cut) == (1, 0)
    assert {score.name: score.value for score in result.scores}["BLEU"] == pytest.approx(100)
    assert len(result.scores) == 6
    assert result.num_tokens > 0 and result.tokens_per_second > 0

    hypotheses_path, scores_path = evaluation.write_evaluation(tmp_path / "new" / "folder", result, {"beam_size": 1})
    assert hypotheses_path.read_text(encoding="utf-8").split("\n") == [*result.hypotheses, ""]
    written = json.loads(scores_path.read_text(encoding="utf-8"))
    assert written["perplexity"] == 4.5 and written["settings"] == {"beam_size": 1}
    assert written["scores"][0]["name"] == "BLEU" and written["num_long_lines"] == 1
    assert written["num_cut"] == 0
    assert sorted(path.name for path in scores_path.parent.iterdir()) == ["hypotheses.txt", "scores.json"]
    for missing_value in (math.inf, math.nan, None):  # JSON cannot represent these numbers
        _, scores_path = evaluation.write_evaluation(
            tmp_path, dataclasses.replace(result, perplexity=missing_value, nats_per_line=missing_value), {}
        )
        assert json.loads(scores_path.read_text(encoding="utf-8"), parse_constant=pytest.fail)["perplexity"] is None


def test_truncated_outputs_are_counted():
    tokenizer = tiny.tokenizer()
    config = DecodeConfig(beam_size=1, max_length_factor=0, max_length_offset=5)
    translator = Translator(tokenizer, tiny.CopyModel(tokenizer.vocab_size), config)
    lines = ["A man", *tiny.SENTENCES, "A man"]
    assert evaluation.evaluate(translator, lines, lines).num_cut == len(tiny.SENTENCES)


def test_searches_are_traced_before_they_are_timed(monkeypatch):
    """A line with text traces the search; a blank line would not."""
    tokenizer, translated_lines = tiny.tokenizer(), []
    translator = Translator(tokenizer, tiny.CopyModel(tokenizer.vocab_size), DecodeConfig(beam_size=1))
    translate = translator.translate
    monkeypatch.setattr(
        translator, "translate", lambda lines, *rest, **options: translated_lines.append(lines) or translate(lines)
    )
    for lines in ([" ", "A man"], [Request(" "), Request("A man")], [" "]):
        translated_lines.clear()
        evaluation.evaluate(translator, lines, ["-", "A man"][: len(lines)])
        assert translated_lines == [lines[-1:], lines]

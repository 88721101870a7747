"""Validation against the plain loss and the translator."""

import copy
import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras import evaluation, losses
from t2t_keras.data.encoded import EncodedCorpus
from t2t_keras.inference.translator import Translation
from t2t_keras.tasks import translation_scores
from t2t_keras.training.step import TrainingStep
from t2t_keras.training.validation import Validation, Validator
from tests.training.tiny_training import make_trainer


@pytest.fixture(scope="module")
def trainer(tmp_path_factory, data):
    """An untrained model, with moving averages of a different model."""
    settings = {"model": {"dropout_rate": 0.5}, "ema_decay": 0.9, "validation_sentences": 3}
    trainer = make_trainer(tmp_path_factory.mktemp("run"), data, **settings)
    random = np.random.default_rng(1)
    for average in trainer.training.averages:
        average.assign(average + random.normal(size=average.shape, scale=0.05))
    return trainer


@pytest.fixture(scope="module")
def validation(trainer) -> Validation:
    return trainer.validator.validate()


def plain_loss(model, corpus) -> float:
    """Returns the mean unsmoothed loss over all tokens, computed per sentence."""
    totals = np.zeros(2)
    for row in range(len(corpus)):
        batch = {"source": corpus.source_ids(np.array([row])), "target": corpus.target_ids(np.array([row]))}
        totals += [float(x) for x in losses.loss_sum_and_count(batch["target"], model(batch))]
    return totals[0] / totals[1]


def test_loss_is_that_of_the_averaged_weights(trainer, data, validation):
    corpus, model = data.split("valid"), trainer.training.model
    # For 40 sentences; it reads the weights at the time of the call.
    traced = tf.function(
        model, [dict.fromkeys(("source", "target"), tf.TensorSpec([None, None], tf.int32))], autograph=False
    )
    trainer.training.fill_model()
    averaged = plain_loss(traced, corpus)
    state = trainer.training.read()["weights"]
    for name, variable in zip(trainer.training.names, model.trainable_variables, strict=True):
        variable.assign(state[name])
    plain = plain_loss(traced, corpus)
    assert validation.loss == pytest.approx(averaged, rel=1e-5)
    assert abs(averaged - plain) > 1e-3
    assert validation.perplexity == pytest.approx(math.exp(averaged), rel=1e-4)


def test_bleu_is_that_of_the_first_sentences(monkeypatch, trainer, data, validation):
    sources, references = (side[:3] for side in data.text("valid"))
    validator = trainer.validator
    trainer.training.fill_model()
    hypotheses = [translation.text for translation in validator._make_translator().translate(sources)]
    assert validation.score == translation_scores.bleu(hypotheses, references)
    # An untrained model has a BLEU of about 0, which would hide mistakes.
    answers = [Translation(text) for text in references]
    monkeypatch.setattr(validator._make_translator(), "translate", lambda lines, scored: answers[: len(lines)])
    assert validator._score() == pytest.approx(100.0)


@pytest.mark.integration
def test_sentences_longer_than_a_batch(tmp_path, data):
    """Training rejects a budget below its longest pair; validation accepts any text."""
    train = data.split("train")
    budget = int(max(train.source_lengths.max(), train.target_lengths.max()))
    trainer = make_trainer(tmp_path, data, tokens_per_batch=budget)
    source = (np.full(budget + 5, 5, np.uint16), np.array([0, budget + 5]))
    long = EncodedCorpus([(source, (np.array([5, 1], np.uint16), np.array([0, 2])))])
    validator = Validator(
        trainer.training, trainer.config, long, ([], []), trainer.validator._make_translator, trainer.workers
    )
    assert validator.validate().loss == pytest.approx(plain_loss(trainer.training.model, long), rel=1e-5)


def test_a_huge_line_is_cut(monkeypatch, tmp_path, data, caplog):
    """It would exceed the memory at every validation."""
    monkeypatch.setattr(evaluation, "MAX_CROSS_ENTROPY_LENGTH", 12)
    data = copy.copy(data)
    data.config = dataclasses.replace(data.config, max_length=9)
    trainer = make_trainer(tmp_path, data)
    ids = np.random.default_rng(1).integers(5, 200, 40).astype(np.uint16)

    def corpus(source_len, target_len):
        long = (ids[:source_len], np.array([0, source_len])), (ids[:target_len], np.array([0, target_len]))
        short = (ids[3:7], np.array([0, 4])), (ids[3:9], np.array([0, 6]))
        return EncodedCorpus([short, long])

    for lengths, cut_lengths in (((40, 13), (12, 12)), ((5, 33), (5, 12))):
        args = (trainer.training, trainer.config, corpus(*lengths), ([], []), trainer.validator._make_translator)
        loss = Validator(*args, trainer.workers).validate().loss
        assert loss == pytest.approx(plain_loss(trainer.training.model, corpus(*cut_lengths)), rel=1e-5)
    assert caplog.text.count("1 validation pairs are longer than 12 tokens; their loss covers the first 12") == 2


@pytest.mark.parametrize("loss", [1e2, 1e5])  # the exponential of the first fits float64, but not float32
def test_a_hopeless_model_has_infinite_perplexity(monkeypatch, trainer, loss):
    monkeypatch.setattr(TrainingStep, "validation_loss", lambda *args: (10 * loss, 10.0))
    monkeypatch.setattr(trainer.validator, "_sources", [])
    assert trainer.validator.validate() == Validation(loss, math.inf, None)

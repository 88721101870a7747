"""Training learns a deterministic task to a loss near zero."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.config import DecodeConfig
from t2t_keras.inference.translator import Translator
from t2t_keras.search.searcher import Searcher
from t2t_keras.tasks import translation_scores
from t2t_keras.training.devices.strategy import distributed, make_strategy
from t2t_keras.training.step import TrainingStep
from tests.training import tiny_training
from tests.training.plain_gleu import gleu_in_python
from tests.training.tiny_training import make_data, make_trainer, records
from tests.training.trajectories import make_step


@pytest.mark.slow
@pytest.mark.parametrize("task, steps", [(tiny_training.copy, 250), (tiny_training.reverse, 600)])
def test_learns(tmp_path, task, steps):
    """The greedy translations of unseen sentences are correct as well."""
    prepared = make_data(tmp_path, task, train_pairs=4000, valid_pairs=30, longest=4)
    trainer = make_trainer(
        tmp_path / "run",
        prepared,
        model={"d_model": 32, "d_ff": 128, "num_heads": 4, "dropout_rate": 0.0},
        tokens_per_batch=1000,
        max_steps=steps,
        warmup_steps=100,
        decay_steps=100,
        learning_rate_scale=0.4,
        label_smoothing=0.0,
        log_steps=50,
        steps_per_call=50,
        checkpoint_steps=steps,
        validation_sentences=30,
    )
    assert trainer.train().step == steps
    assert records(tmp_path / "run", "train")[-1]["loss"] < 0.05
    sources, references = prepared.text("valid")
    assert references == [task(source) for source in sources]
    translator = Translator.load(tmp_path / "run")
    hypotheses = [translation.text for translation in translator.translate(sources)]
    right = sum(hypothesis == reference for hypothesis, reference in zip(hypotheses, references, strict=True))
    assert right >= 28, list(zip(hypotheses, references, strict=True))
    # The trainer's BLEU comes from the same search with the same weights.
    assert records(tmp_path / "run", "valid")[-1]["bleu"] == translation_scores.bleu(hypotheses, references)


def reversed_words(count: int, seed: int) -> dict[str, np.ndarray]:
    """Returns sources of 3 to 6 of nine words, and the same words in reverse."""
    random = np.random.default_rng(seed)
    source, target = np.zeros((2, count, 7), np.int32)
    for row in range(count):
        words = random.integers(3, 12, random.integers(3, 7))
        source[row, : len(words) + 1], target[row, : len(words) + 1] = [*words, 1], [*words[::-1], 1]
    return {"source": source, "target": target}


def step_on_words(first_seed: int, **train) -> tuple[TrainingStep, object]:
    """Returns a training step and its batches, which are all different."""
    training = make_step(train, {"vocab_size": 12, "d_model": 32, "d_ff": 64}, make_strategy("cpu"))
    ids = tf.TensorSpec([None, None], tf.int32)
    batches = tf.data.Dataset.from_generator(
        lambda: (reversed_words(64, first_seed + batch) for batch in range(10**6)),
        output_signature={"source": ids, "target": ids},
    )
    return training, distributed(training.strategy, batches)


def sampled_gleu(training: TrainingStep, pairs: dict[str, np.ndarray]) -> float:
    """Returns the mean GLEU of eight samples of each sentence, from the search of translations."""
    training.fill_model()
    settings = DecodeConfig(sampling=True, beam_size=8, max_length_factor=1.25, max_length_offset=5)
    samples = Searcher(training.model, settings)(pairs["source"]).token_ids.numpy()
    gleus = [
        gleu_in_python(text, reference)
        for texts, reference in zip(samples.tolist(), pairs["target"].tolist(), strict=True)
        for text in texts
    ]
    return float(np.mean(gleus))


@pytest.mark.slow
def test_risk_raises_the_expected_gleu_of_sentences_it_never_saw():
    """Within a few updates of a half-trained model."""
    held_out = reversed_words(100, seed=10**9)
    likelihood, batches = step_on_words(1, learning_rate_scale=0.5, warmup_steps=100)
    likelihood.run(batches, 200)
    before = sampled_gleu(likelihood, held_out)
    settings = {"objective": "risk", "schedule": "constant", "learning_rate_scale": 1e-3, "warmup_steps": 5}
    risk, batches = step_on_words(10**7, **settings, likelihood_weight=0.0)
    risk.write({"weights": likelihood.read()["weights"]}, 0)
    measured = risk.run(batches, 50).measures["sampled_gleu"]
    after = sampled_gleu(risk, held_out)
    assert 0.4 < before < 0.8 and after > before + 0.08
    assert measured[-5:].mean() > measured[:5].mean() + 0.05

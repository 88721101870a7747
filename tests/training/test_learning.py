"""That what is trained learns: a task with one right answer, to near zero loss."""

import pytest
import tiny_training
from tiny_training import make_data, make_trainer, records

from t2t_keras import evaluation
from t2t_keras.inference.translator import Translator


@pytest.mark.parametrize("task, steps", [(tiny_training.copy, 250), (tiny_training.reverse, 400)])
def test_learns(tmp_path, task, steps):
    """To near zero loss, and the greedy translations of sentences it never saw are right."""
    prepared = make_data(tmp_path, task, train_pairs=4000, valid_pairs=30, longest=4)
    trainer = make_trainer(
        tmp_path / "run",
        prepared,
        model={"d_model": 32, "d_ff": 128, "num_heads": 4, "dropout_rate": 0.0},
        tokens_per_batch=1000,
        max_steps=steps,
        warmup_steps=100,
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
    # The trainer's own BLEU is of the same search with the same weights.
    assert records(tmp_path / "run", "valid")[-1]["bleu"] == evaluation.bleu(hypotheses, references)

"""Training and export work for every family of the package."""

import json
import os
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.config import Config, DataConfig, DecodeConfig
from t2t_keras.config.model_config import _FAMILIES
from t2t_keras.export.writing import export_translator
from t2t_keras.inference.forced import token_log_probs_function
from t2t_keras.inference.translator import Translator
from t2t_keras.models import families
from t2t_keras.search.ensemble import Ensemble
from t2t_keras.search.searcher import Searcher
from t2t_keras.training.devices.strategy import make_strategy
from tests import programs
from tests.inference import tiny
from tests.training.tiny_families import TINY, tiny_family
from tests.training.trajectories import make_batches, make_step, trajectory

pytestmark = pytest.mark.integration

TESTS = pathlib.Path(__file__).parent
STEPS = 4
# Batches are so small that one of two shares is usually empty.
TRAIN = {"tokens_per_batch": 20, "clip_norm": 0.5}

every_family = pytest.mark.parametrize("family", TINY)


def test_all_families_are_tested():
    assert set(TINY) == set(_FAMILIES)


@pytest.fixture(scope="module")
def trainings(tmp_path_factory) -> dict[str, np.ndarray]:
    """Losses and weights after a few steps without dropout, on one replica and on two."""
    folder = tmp_path_factory.mktemp("every_family")
    cases = {
        f"{family}_{replicas}": {"replicas": replicas, "steps": STEPS, "model": family, "train": TRAIN}
        for family in TINY
        for replicas in (1, 2)
    }
    (folder / "cases.json").write_text(json.dumps(cases), encoding="utf-8")
    command = [TESTS / "training" / "trajectories.py", folder / "cases.json", folder / "results.npz"]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(TESTS.parent)}
    programs.run(command, check=True, env=environment, timeout=1200)
    return dict(np.load(folder / "results.npz"))


@every_family
def test_two_replicas_equal_one(trainings, family):
    one, two = (trainings[f"{family}_{replicas}:loss"] for replicas in (1, 2))
    assert len(set(one)) == STEPS
    np.testing.assert_allclose(two, one, rtol=1e-5)


@pytest.mark.slow
@every_family
def test_resumed_training_is_bit_identical(family):
    """Resumes from the contents of a checkpoint, with dropout and other randomness."""
    strategy = make_strategy("cpu", 1)
    noise = {"gate_noise": True} if hasattr(TINY[family], "gate_noise") else {}
    model = tiny_family(family, dropout_rate=0.3, **noise)
    first, second = (make_step({}, model, strategy) for _ in range(2))
    first.run(make_batches(first.config, strategy), 2)
    second.write(first.read(), 2)
    for training in (first, second):
        training.run(make_batches(first.config, strategy), 2)
    states = [training.read() for training in (first, second)]
    assert states[0].keys() == states[1].keys()
    for part, arrays in states[0].items():
        for name, array in arrays.items():
            np.testing.assert_array_equal(states[1][part][name], array, err_msg=f"{part}/{name}")


@pytest.mark.slow
@every_family
def test_xla_computes_the_same(family):
    plain, compiled = (
        trajectory(steps=2, model=family, train={"static_shapes": True, "jit_compile": jit_compile})["loss"]
        for jit_compile in (False, True)
    )
    assert len(set(plain)) == 2
    np.testing.assert_allclose(compiled, plain, rtol=1e-5)


# tests/export/ tests the Transformer.
OTHERS = [family for family in TINY if family not in ("transformer", "rnn_attention")]


@pytest.mark.parametrize("family", ["rnn_attention", *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)])
def test_exports_translate_and_score_like_the_translator(family, tmp_path):
    vocab_size = tiny.tokenizer().vocab_size
    keras.utils.set_random_seed(1)
    model = families.make_model(tiny_family(family, vocab_size=vocab_size))
    for weight in model.trainable_variables:
        weight.assign(3 * weight)  # makes the outputs more certain
    translator = Translator(tiny.tokenizer(), model, DecodeConfig(beam_size=3, max_length_offset=2))
    config = Config(model=model.config, data=DataConfig(vocab_size=vocab_size), decode=translator.config)
    version = export_translator(translator, config, tmp_path / family)
    signatures = tf.saved_model.load(str(version)).signatures
    texts = tf.constant(tiny.SENTENCES)
    actual, expected = signatures["serving_default"](texts), translator.translate(tiny.SENTENCES)
    assert [text.decode() for text in actual["translation"].numpy()] == [each.text for each in expected]
    np.testing.assert_allclose(actual["score"], [each.score for each in expected], rtol=1e-5, atol=1e-4)
    assert len({each.text for each in expected}) > 1
    state, outputs = signatures["stream_begin"](text=texts[1:2]), {"done": False}
    while not outputs["done"]:  # with a step function that has not seen the source
        outputs = signatures["stream_advance"](steps=tf.constant(3), **state)
        state = {name: outputs[name] for name in state}
    np.testing.assert_array_equal(outputs["translation"], actual["translation"][1:2])
    np.testing.assert_allclose(outputs["score"], actual["score"][1:2], rtol=2e-4)  # the batches differ in size
    log_probs = signatures["score"](text=texts, target=texts[::-1])["log_probability"]
    expected = translator.score(tiny.SENTENCES, tiny.SENTENCES[::-1])
    np.testing.assert_allclose(log_probs, [each.log_prob for each in expected], rtol=1e-5, atol=1e-4)


def test_ensemble_of_all_families():
    """Different families share a vocabulary; the sum of their steps equals the scores of forced decoding."""
    keras.utils.set_random_seed(1)
    models = [families.make_model(config) for config in TINY.values()]
    for weight in (weight for model in models for weight in model.trainable_variables):
        weight.assign(3 * weight)
    ensemble = Ensemble(models)
    source = np.array([[5, 6, 7, 30, 1], [9, 8, 1, 0, 0]], np.int32)
    result = Searcher(ensemble, DecodeConfig(beam_size=3, max_length_offset=3))(source)
    expected = np.sum(token_log_probs_function(ensemble)(source, result.token_ids[:, 0]), axis=1)
    np.testing.assert_allclose(result.log_probs[:, 0], expected, rtol=1e-5, atol=1e-4)

"""Ensembles: compared with one model and with NumPy, with and without a cache, and loaded from disk."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.config import DecodeConfig, TransformerConfig
from t2t_keras.errors import InputError
from t2t_keras.inference.forced import token_log_probs_function
from t2t_keras.inference.loading import load_ensemble
from t2t_keras.inference.translator import Translator
from t2t_keras.models.contract import COVERAGE, Attentions
from t2t_keras.models.transformer import Transformer
from t2t_keras.models.weights import weight_names
from t2t_keras.runs import checkpoints, run
from t2t_keras.runs.run import RunCheckpoint
from t2t_keras.search.batches import padded
from t2t_keras.search.beam_search import beam_search
from t2t_keras.search.ensemble import Ensemble, combined_logits
from t2t_keras.search.goal import Goal
from t2t_keras.symbols import EOS_ID
from tests.inference import tiny
from tests.vocabularies import train_tokenizer

COMBINATIONS = ["probabilities", "log_probabilities"]
every_combination = pytest.mark.parametrize("combination", COMBINATIONS)
SOURCE = padded([[5, 6, 7, 8, EOS_ID], [9, 300, EOS_ID]])


def logits_of(model, inputs: dict) -> tf.Tensor:
    return model.logits(model.states(inputs).hidden)


def make_model(seed: int, **changes) -> Transformer:
    """Returns an untrained model with strong preferences."""
    tf.keras.utils.set_random_seed(seed)
    model = Transformer(TransformerConfig(vocab_size=tiny.tokenizer().vocab_size, **{**tiny.MODEL, **changes}))
    model.build()
    rng = np.random.default_rng(seed)
    for weight in model.trainable_variables:
        weight.assign(weight + 0.3 * rng.standard_normal(tuple(weight.shape)).astype("float32"))
    return model


@pytest.fixture(scope="module")
def models():
    return [make_model(1), make_model(2, d_model=24, num_heads=4, num_encoder_layers=2, num_decoder_layers=1)]


def make_translator(model, **settings) -> Translator:
    return Translator(tiny.tokenizer(), model, DecodeConfig(**{"max_length_offset": 4, **settings}))


def combine_in_numpy(logits: list[np.ndarray], combination: str) -> np.ndarray:
    """Returns the normalised log-probabilities of the combination in float64."""

    def log_softmax(values: np.ndarray) -> np.ndarray:
        values = values.astype(np.float64) - values.max(-1, keepdims=True)
        return values - np.log(np.exp(values).sum(-1, keepdims=True))

    log_probs = [log_softmax(values) for values in logits]
    if combination == "probabilities":
        return np.log(np.mean([np.exp(values) for values in log_probs], axis=0))
    return log_softmax(np.mean(log_probs, axis=0))


@pytest.mark.quick("1-3-log_probabilities")
@every_combination
@pytest.mark.parametrize(("copies", "beam"), [(1, 3), (3, 1)])
def test_an_ensemble_of_one_model_equals_the_model(models, combination, copies, beam):
    expected = make_translator(models[0], beam_size=beam).search(SOURCE)
    actual = make_translator(Ensemble(models[:1] * copies, combination), beam_size=beam).search(SOURCE)
    np.testing.assert_array_equal(actual.token_ids, expected.token_ids)
    np.testing.assert_array_equal(actual.lengths, expected.lengths)
    np.testing.assert_allclose(actual.scores, expected.scores, atol=1e-5, rtol=1e-6)
    np.testing.assert_allclose(actual.log_probs, expected.log_probs, atol=1e-5, rtol=1e-6)


@every_combination
def test_combined_probabilities_equal_numpy(models, combination):
    inputs = {"source": SOURCE, "target": padded([[7, 8, 9, 10, EOS_ID], [5, EOS_ID]])}
    logits = logits_of(Ensemble(models, combination), inputs)
    assert logits.dtype == tf.float32
    expected = combine_in_numpy([model(inputs, training=False).numpy() for model in models], combination)
    np.testing.assert_allclose(tf.nn.log_softmax(logits), expected, atol=1e-5)


def test_probabilities_below_the_range_of_float32_stay_finite():
    logits = np.array([[0.0, -40.0, -80.0, -300.0]], np.float32)
    one, other = (tf.nn.log_softmax(combined_logits([logits, logits - 5], name)).numpy() for name in COMBINATIONS)
    np.testing.assert_allclose(one[:, :3], logits[:, :3], atol=1e-4)
    assert -90 < one[0, 3] < -80
    np.testing.assert_allclose(other, logits, atol=1e-4)


@pytest.mark.integration
@every_combination
def test_scores_of_the_search_equal_teacher_forcing(models, combination):
    """This requires that every member's cache follows its hypothesis."""
    ensemble = Ensemble(models, combination)
    result = make_translator(ensemble, beam_size=4).search(SOURCE)
    assert len({tuple(ids) for ids in result.token_ids.numpy()[0]}) == 4
    token_log_probs = token_log_probs_function(ensemble)
    for slot in range(4):
        actual = token_log_probs(SOURCE, result.token_ids[:, slot])
        np.testing.assert_allclose(tf.reduce_sum(actual, 1), result.log_probs[:, slot], atol=1e-4)


def test_coverage_is_the_mean_of_the_members(models):
    """It also holds after hypotheses have changed places: an ensemble of one model equals the model."""

    def search(model, penalty: float):
        search_start = model.start_search(SOURCE, model.encode(SOURCE), 3, capabilities=frozenset({COVERAGE}))
        goal = Goal(DecodeConfig(beam_size=3, coverage_penalty=penalty), [9, 7])
        return beam_search(search_start.step, search_start.cache, goal)

    expected, actual = (search(model, 0.4) for model in (models[0], Ensemble(models[:1] * 2)))
    np.testing.assert_array_equal(actual.token_ids, expected.token_ids)
    np.testing.assert_allclose(actual.scores, expected.scores, atol=1e-5, rtol=1e-6)
    assert np.abs(search(models[0], 0.0).scores - expected.scores).max() > 0.01

    ensemble, parts = Ensemble(models), []
    for model in (ensemble, *models):
        search_start = model.start_search(SOURCE, model.encode(SOURCE), 1, capabilities=frozenset({COVERAGE}))
        parts.append(search_start.step(np.zeros(2, np.int32), search_start.cache)[1].coverage)
    np.testing.assert_allclose(parts[0], (parts[1] + parts[2]) / 2, atol=1e-6)


@pytest.mark.integration
def test_attention_is_the_mean_of_the_members():
    alike = [make_model(1), make_model(2)]
    inputs = {"source": SOURCE, "target": SOURCE}
    logits, attention = Ensemble(alike).logits_and_attention(inputs)
    np.testing.assert_allclose(logits, logits_of(Ensemble(alike), inputs), atol=1e-4)
    for kind in Attentions._fields:
        members = [getattr(model.logits_and_attention(inputs)[1], kind) for model in alike]
        np.testing.assert_allclose(getattr(attention, kind), np.mean(members, axis=0), atol=1e-6)
    explanation = make_translator(Ensemble(alike)).explain(["A man"], ["dogs"])[0]
    np.testing.assert_allclose(explanation.attention.cross.sum(-1), 1.0, rtol=1e-5)
    ids = [tiny.tokenizer().encode("A man")], [tiny.tokenizer().encode("dogs")]
    (aligned,) = make_translator(Ensemble(alike)).align_tokens(*ids)
    (expected,) = make_translator(Ensemble(alike)).explain_tokens(*ids)
    assert str(aligned) == expected.word_alignment() != ""


def test_attention_of_members_with_different_layers_is_rejected(models):
    with pytest.raises(InputError, match="average their attention; these have 2 layers of 2 heads; 1 layers of 4"):
        make_translator(Ensemble(models)).explain(["A man"], ["dogs"])


def test_invalid_arguments_are_named():
    with pytest.raises(ValueError, match="models"):
        Ensemble([])
    with pytest.raises(ValueError, match="models"):
        Translator.load_ensemble([])
    with pytest.raises(ValueError, match="combination .* got 'median'"):
        Ensemble([make_model(1)], "median")
    with pytest.raises(ValueError, match=r"one vocabulary, got sizes \[3, 4\]"):
        combined_logits([tf.zeros([2, 3]), tf.zeros([2, 4])], "probabilities")


@pytest.fixture
def model_dir(tmp_path) -> pathlib.Path:
    """A run with two checkpoints."""
    model_dir = tiny.make_run(tmp_path / "run")
    add_checkpoint(model_dir, 2, make_model(2))
    return model_dir


def add_checkpoint(model_dir: pathlib.Path, step: int, model: Transformer) -> None:
    names = weight_names(model)
    weights = {name: weight.numpy() for name, weight in zip(names, model.trainable_variables, strict=True)}
    checkpoints.save(run.Run(model_dir).checkpoints_path, step, weights, {}, {})


@pytest.mark.integration
def test_checkpoints_of_one_run(model_dir):
    loaded = Translator.load_ensemble([(model_dir, "1"), RunCheckpoint(model_dir)], "log_probabilities")
    direct = Ensemble([tiny.transformer(), make_model(2)], "log_probabilities")
    inputs = {"source": SOURCE, "target": SOURCE}
    actual, expected = (logits_of(model, inputs) for model in (loaded.model, direct))
    np.testing.assert_allclose(actual, expected, atol=1e-6)
    assert loaded.config.beam_size == 2 and loaded.max_source_length == 256
    with pytest.raises(InputError, match="77"):
        Translator.load_ensemble([(model_dir, "1"), (model_dir, "77")])


@pytest.mark.integration
def test_runs_with_different_settings(model_dir, tmp_path, monkeypatch):
    """The shortest limit applies, and the search settings of the first run; exclusions of all runs are combined."""
    shorter = tiny.make_run(tmp_path / "shorter", max_length=100)
    monkeypatch.setattr(run.Run, "excluded", property(lambda self: ("dog",) if self.path == shorter else ()))
    assert load_ensemble([(model_dir, None), (shorter, None)]).excluded == ("dog",)
    loaded = Translator.load_ensemble([(model_dir, None), (shorter, None)], settings=DecodeConfig(beam_size=1))
    assert loaded.max_source_length == 100 and loaded.config.beam_size == 1
    lowercased = tiny.make_run(tmp_path / "lowercased", lowercase="both")
    with pytest.raises(InputError, match="run was trained with data.lowercase=none, .*lowercased with both"):
        Translator.load_ensemble([(model_dir, None), (lowercased, None)])


def test_different_vocabularies_are_rejected_by_name(model_dir, tmp_path):
    other = tiny.make_run(tmp_path / "other")
    train_tokenizer([line.swapcase() for line in tiny.SENTENCES], 350, other / "vocab.model")
    with pytest.raises(InputError, match=r"run and .*other have different vocabularies: entry \d+ is '.*' in one and"):
        Translator.load_ensemble([(model_dir, None), (model_dir, "1"), (other, None)])

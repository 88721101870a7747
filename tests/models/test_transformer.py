"""The Transformer: shapes, masks, decoding with a cache, balance loss, weights and dropout."""

import dataclasses
import functools
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from t2t_keras import kernels
from t2t_keras.config import TransformerConfig
from t2t_keras.errors import InputError
from t2t_keras.layers import padding_mask, window_mask
from t2t_keras.layers.collectors import AuxiliaryLosses
from t2t_keras.models.contract import BFLOAT16, COVERAGE, Attentions
from t2t_keras.models.transformer import Ancestry, Transformer
from t2t_keras.models.weights import named_weights, weight_names
from tests.baselines.untrained import assert_steps_are_teacher_forcing

SMALL = TransformerConfig(
    vocab_size=13, num_encoder_layers=2, num_decoder_layers=2, d_model=16, d_ff=24, num_heads=2, dropout_rate=0.2
)
OPTIONS = {
    "base": {},
    "t2t": {
        "norm_position": "pre",
        "position_encoding": "sinusoidal_halves",
        "use_attention_bias": False,
        "attention_dropout_rate": 0.1,
        "relu_dropout_rate": 0.1,
    },
    # All sizes differ.
    "widths": {
        **{"d_model": 15, "num_heads": 3, "d_key": 5, "d_value": 7, "tie_embeddings": False, "activation": "swish"},
        **{"use_output_bias": True, "position_encoding": "learned", "max_positions": 16},
    },
    "experts": {"num_experts": 5, "experts_per_token": 2, "d_expert": 9},
    "additive_window": {"attention_score": "additive", "d_key": 5, "attention_window": 2, "norm_position": "pre"},
}
every_option = pytest.mark.parametrize("changes", OPTIONS.values(), ids=OPTIONS)
SOURCE = np.array([[3, 4, 5, 1, 0, 0], [6, 7, 8, 9, 3, 1]], "int32")
TARGET = np.array([[5, 6, 7, 8, 1], [9, 3, 1, 0, 0]], "int32")


@pytest.fixture(autouse=True)
def random_seed():
    keras.utils.set_random_seed(7)


def make(changes=None) -> Transformer:
    """Returns a built model with random changes to every weight, including biases and scales."""
    model = Transformer(dataclasses.replace(SMALL, **(changes or {})))
    model.build()
    rng = np.random.default_rng(5)
    for weight in model.trainable_variables:
        weight.assign(weight + 0.1 * rng.standard_normal(tuple(weight.shape)).astype("float32"))
    return model


def shared_model(changes: dict[str, Any] | None = None) -> Transformer:
    """Returns one model for all tests that do not modify it."""
    return _shared(tuple(sorted((changes or {}).items())))


@functools.cache
def _shared(changes: tuple[tuple[str, Any], ...]) -> Transformer:
    return make(dict(changes))


def logits_of(model, source=SOURCE, target=TARGET, **kwargs) -> np.ndarray:
    return np.array(model({"source": source, "target": target}, **kwargs))


@every_option
def test_logits_have_the_vocabulary_and_are_float32(changes):
    model = shared_model(changes)
    logits = model({"source": SOURCE, "target": TARGET})
    assert tuple(logits.shape) == (2, 5, 13)
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    assert model.compute_output_shape({"source": (2, 6), "target": (2, 5)}) == (2, 5, 13)
    assert tuple(model.encode(SOURCE).shape) == (2, 6, model.config.d_model)
    states = model.states({"source": SOURCE, "target": TARGET})
    np.testing.assert_allclose(model.output_embedding.logits(states.hidden), logits, atol=1e-6)


@pytest.mark.quick("base", "experts", "additive_window")
@every_option
def test_later_targets_change_no_logits_before_them(changes):
    model = shared_model(changes)
    logits = logits_of(model)
    for position in range(4):
        changed = TARGET.copy()
        changed[:, position:] = (changed[:, position:] + 3) % 12 + 1
        perturbed = logits_of(model, target=changed)
        # The first position that depends on a target is the next one.
        np.testing.assert_allclose(perturbed[:, : position + 1], logits[:, : position + 1], atol=1e-6)
        assert np.all(np.abs(perturbed[:, position + 1] - logits[:, position + 1]).max(-1) > 1e-4)


@pytest.mark.quick("base", "experts", "additive_window")
@every_option
def test_padding_and_other_sentences_do_not_affect_logits(changes):
    model = shared_model(changes)
    logits = logits_of(model)
    np.testing.assert_allclose(logits_of(model, SOURCE[:1, :4], TARGET[:1]), logits[:1], atol=1e-5)
    np.testing.assert_allclose(logits_of(model, SOURCE[1:], TARGET[1:, :3]), logits[1:, :3], atol=1e-5)
    wider = np.pad(SOURCE, ((0, 0), (0, 7)))
    np.testing.assert_allclose(logits_of(model, wider), logits, atol=1e-5)


@pytest.mark.quick("base")
@every_option
def test_skipping_padding_does_not_affect_tokens(changes):
    """Tested eagerly and in a graph."""
    model = shared_model(changes)
    batch = {"source": SOURCE, "target": TARGET}
    expected = np.array(model.states(batch).hidden)
    for states in (model.states, tf.function(model.states, autograph=False)):
        skipped = np.array(states(batch, skip_padding=True).hidden)
        np.testing.assert_allclose(skipped[TARGET != 0], expected[TARGET != 0], atol=1e-5)
        assert np.isfinite(skipped).all()
        assert np.abs(skipped - expected)[TARGET == 0].max() > 1e-4


@pytest.mark.quick("base")
@every_option
def test_logits_and_attention_equal_the_call(changes):
    """Tested eagerly and in a graph with unknown shapes; layers and heads differ, padding and later positions have no
    weight.
    """
    model = shared_model(changes)
    compiled = tf.function(
        model.logits_and_attention,
        input_signature=[dict.fromkeys(("source", "target"), tf.TensorSpec([None, None], tf.int32))],
        autograph=False,
    )
    batch = {"source": tf.constant(SOURCE), "target": tf.constant(TARGET)}
    sizes, heads = Attentions(encoder=(6, 6), decoder=(5, 5), cross=(5, 6)), model.config.num_heads
    for compute in (model.logits_and_attention, compiled):
        logits, attentions = compute(batch)
        np.testing.assert_allclose(logits, logits_of(model), atol=1e-5)
        for weights, size in zip(map(np.array, attentions), sizes, strict=True):
            assert weights.shape == (2, 2, heads, *size) and weights.dtype == np.float32
            np.testing.assert_allclose(weights.sum(-1), 1.0, rtol=1e-5)
            assert np.abs(weights[:, 0] - weights[:, 1]).max() > 1e-3
            assert np.abs(weights[:, :, 0] - weights[:, :, 1]).max() > 1e-3
        reach = model.config.attention_window or 6
        near, earlier = np.array(window_mask(6, (reach, reach)))[0, 0], np.array(window_mask(5, (reach, 0)))[0, 0]
        for weights, visible in ((attentions.encoder, near), (attentions.cross, np.ones((5, 6), bool))):
            assert np.all(weights[0, ..., 4:] == 0) and np.all((np.array(weights)[1] > 0) == visible)
        np.testing.assert_array_equal(np.array(attentions.decoder) > 0, np.broadcast_to(earlier, (2, 2, heads, 5, 5)))


def test_every_source_token_affects_the_logits():
    model = shared_model()
    logits = logits_of(model)
    for position in range(4):
        changed = SOURCE.copy()
        changed[0, position] = 11
        assert np.abs(logits_of(model, changed)[0, 0] - logits[0, 0]).max() > 1e-4


def test_a_source_of_padding_gives_finite_logits():
    """Such rows fill up a batch; their loss has no weight but must not be NaN."""
    model = shared_model()
    assert np.all(np.isfinite(logits_of(model, np.zeros_like(SOURCE), np.zeros_like(TARGET), training=True)))


@pytest.mark.quick("3-base", "1-experts", "3-additive_window")
@every_option
@pytest.mark.parametrize("beam_size", [1, 3])
def test_decoding_with_a_cache_equals_the_call(changes, beam_size):
    """Hypotheses change places at each step, as in a search, and the cache is reordered."""
    model = shared_model(changes)
    rng = np.random.default_rng(3)
    length, rows = 5, 2 * beam_size
    search = model.start_search(SOURCE, model.encode(SOURCE), beam_size)
    cache = search.cache
    prefixes = np.zeros((rows, 1), "int32")  # the start symbol
    for step in range(length):
        assert int(cache.position) == step
        logits, cache = search.step(prefixes[:, -1], cache)
        assert keras.backend.standardize_dtype(logits.dtype) == "float32"
        # The logits at a position depend on the tokens before it, so the last target is arbitrary.
        targets = np.concatenate([prefixes[:, 1:], np.ones((rows, 1), "int32")], 1)
        expected = logits_of(model, np.repeat(SOURCE, beam_size, 0), targets)[:, -1]
        np.testing.assert_allclose(logits, expected, atol=1e-5)
        chosen = np.concatenate([beam_size * i + rng.integers(0, beam_size, beam_size) for i in range(2)])
        is_ancestor = np.array(cache.per_hypothesis.is_ancestor)
        positions = min(step + 1, model.config.attention_window or length)
        assert is_ancestor.shape == (2, beam_size, positions * beam_size if beam_size > 1 else 0)
        is_ancestor = is_ancestor.reshape(rows, -1)[chosen].reshape(is_ancestor.shape)
        cache = cache._replace(per_hypothesis=Ancestry(ops.convert_to_tensor(is_ancestor)))
        prefixes = np.concatenate([prefixes[chosen], rng.integers(1, 13, (rows, 1), "int32")], 1)


@pytest.mark.integration
@pytest.mark.parametrize(
    "settings",
    [
        {"beam_size": 3, "sampling": True},
        {"beam_size": 4, "num_groups": 2, "diversity_strength": 0.5, "coverage_penalty": 0.4},
    ],
    ids=lambda settings: ",".join(settings),
)
def test_searches_with_experts_equal_teacher_forcing(settings):
    """A search routes each hypothesis separately; teacher forcing computes whole targets."""
    assert_steps_are_teacher_forcing(make(OPTIONS["experts"]), {"max_length_offset": 4, **settings}, SOURCE)


def test_the_balance_loss_of_a_batch_is_the_sum_of_its_sentences():
    """Each sentence is weighted by its target tokens; padding and skipping it do not matter."""
    model = make({**OPTIONS["experts"], "gate_noise": False, "dropout_rate": 0.0})

    def loss(rows, padding: int = 0, **options) -> float:
        source, target = (np.pad(ids[rows], ((0, 0), (0, padding))) for ids in (SOURCE, TARGET))
        return float(model.states({"source": source, "target": target}, training=True, **options).auxiliary_loss)

    batch_loss = loss(slice(None))
    assert batch_loss > 0.01
    assert sum(loss(slice(row, row + 1), padding=row) for row in range(2)) == pytest.approx(batch_loss, rel=1e-5)
    assert loss(slice(None), skip_padding=True) == pytest.approx(batch_loss, rel=1e-5)
    assert loss(slice(None), padding=3) == pytest.approx(batch_loss, rel=1e-5)
    assert loss(slice(0, 0)) == 0
    layers = [*model.encoder.layers, *model.decoder.layers]
    tokens = np.count_nonzero(TARGET, axis=1)
    with AuxiliaryLosses(SOURCE != 0) as source_losses:
        memory = model.encoder(model.source_positions(model.source_embedding(SOURCE)), padding_mask(SOURCE))
    for layer in layers[: model.config.num_encoder_layers]:
        layer.feed_forward.balance_weight = 0.0
    assert batch_loss - loss(slice(None)) == pytest.approx(np.sum(tokens * np.array(source_losses.total())), rel=1e-4)
    assert memory.shape == (2, 6, 16)
    for layer in layers:
        layer.feed_forward.balance_weight = 0.0
    assert loss(slice(None)) == 0


@pytest.mark.quick("base")
@every_option
def test_coverage_is_the_attention_of_all_steps(changes):
    """Coverage is the last layer's attention, averaged over heads, as in the call; logits do not change."""
    model, beam_size = shared_model(changes), 2
    without_coverage, with_coverage = (
        model.start_search(SOURCE, model.encode(SOURCE), beam_size, capabilities=frozenset(capabilities))
        for capabilities in ((), (COVERAGE,))
    )
    inputs = np.array([[0, 5, 7], [0, 3, 3], [0, 4, 4], [0, 5, 7]])  # the inputs of each hypothesis
    sources, targets = np.repeat(SOURCE, beam_size, axis=0), np.pad(inputs[:, 1:], [(0, 0), (0, 1)], constant_values=1)
    _, attentions = model.logits_and_attention({"source": sources, "target": targets})
    weights = np.array(attentions.cross)[:, -1].mean(axis=1)  # --> [batch * beam, steps, source_len]
    expected = ((sources == 0)[:, None] + weights.cumsum(axis=1)).reshape(2, beam_size, 3, -1)
    plain_cache, covered_cache = without_coverage.cache, with_coverage.cache
    assert plain_cache.coverage.shape == (2, beam_size, 0)
    for step in range(3):
        logits, plain_cache = without_coverage.step(inputs[:, step], plain_cache)
        covered_logits, covered_cache = with_coverage.step(inputs[:, step], covered_cache)
        np.testing.assert_allclose(covered_cache.coverage, expected[:, :, step], atol=1e-5)
        np.testing.assert_allclose(covered_logits, logits, atol=1e-5)


@pytest.mark.quick("base")
@every_option
def test_steps_with_bfloat16_weights_are_close(changes):
    if "num_experts" in changes:  # Rounding can change the selection of experts, so select all.
        changes = {**changes, "experts_per_token": changes["num_experts"]}
    model = shared_model(changes)
    exact, rounded = (
        model.start_search(SOURCE, model.encode(SOURCE), 1, capabilities=frozenset(capabilities))
        for capabilities in ((), (BFLOAT16,))
    )
    exact_cache, rounded_cache = exact.cache, rounded.cache
    for token in (0, 5, 7):
        expected, exact_cache = exact.step(np.full(2, token), exact_cache)
        logits, rounded_cache = rounded.step(np.full(2, token), rounded_cache)
        assert keras.backend.standardize_dtype(logits.dtype) == "float32"
        assert 0 < np.abs(np.array(logits) - np.array(expected)).max() < 0.05 * np.abs(np.array(expected)).max()


def test_only_the_ancestry_in_the_cache_is_per_hypothesis():
    model = shared_model()
    cache = model.start_search(SOURCE, model.encode(SOURCE), 3).cache
    assert [tuple(x.shape) for x in keras.tree.flatten(cache.per_hypothesis)] == [(2, 3, 0)]
    for nest, lengths in ((cache.per_sentence, {0}), (cache.source, {1, SOURCE.shape[1]})):
        assert {tuple(x.shape)[0] for x in keras.tree.flatten(nest)} == {2}
        assert {tuple(x.shape)[2] for x in keras.tree.flatten(nest)} == lengths


def test_the_gain_scales_the_query_key_and_value_kernels_of_every_layer():
    weights = []
    for gain in (1.0, 0.5):
        keras.utils.set_random_seed(1)
        model = Transformer(dataclasses.replace(SMALL, attention_gain=gain))
        model.build()
        weights.append({name: np.array(weight) for name, weight in named_weights(model).items()})
    before, after = weights
    scaled = {name for name in before if name.endswith(("query_kernel", "key_kernel", "value_kernel"))}
    assert len(scaled) == 3 * 2 + 6 * 2
    for name, array in before.items():
        np.testing.assert_array_equal(after[name], array * (0.5 if name in scaled else 1), err_msg=name)
    with pytest.raises(InputError, match=r"model\.attention_gain must be a finite number above 0, got 0"):
        TransformerConfig(attention_gain=0.0)


def test_tied_embeddings_are_one_matrix_and_separate_ones_three():
    tied, separate = shared_model(), make({"tie_embeddings": False})
    assert tied.source_embedding is tied.target_embedding is tied.output_embedding
    matrices = [weight for weight in separate.trainable_variables if tuple(weight.shape) == (13, 16)]
    assert len(matrices) == 3
    assert separate.count_params() - tied.count_params() == 2 * 13 * 16


@pytest.mark.quick("base")
@every_option
def test_dropout_depends_on_the_seed(changes):
    model = shared_model(changes)
    seeds = [ops.convert_to_tensor(words, "int32") for words in ([1, 2], [1, 3])]
    outputs = logits_of(model, seed=seeds[0], training=True)
    np.testing.assert_array_equal(outputs, logits_of(model, seed=seeds[0], training=True))
    assert np.abs(outputs - logits_of(model, seed=seeds[1], training=True)).max() > 1e-3
    np.testing.assert_array_equal(logits_of(model, seed=seeds[0]), logits_of(model))
    assert np.abs(logits_of(model, training=True) - logits_of(model, training=True)).max() > 1e-3


def test_every_site_of_dropout_has_a_different_seed(monkeypatch):
    """With equal seeds, masks of equal shapes, as in neighbouring layers, would be equal."""
    model = make(OPTIONS["t2t"])
    seeds = []

    def record_seed(inputs, rate, seed):
        seeds.append(tuple(np.array(seed).tolist()))
        return inputs

    monkeypatch.setattr(kernels, "dropout", record_seed)
    logits_of(model, seed=ops.convert_to_tensor([1, 2], "int32"), training=True)
    # Two embeddings; per encoder layer two sub-layers, attention weights and ReLU; per decoder layer 3 + 2 + 1.
    assert len(seeds) == 2 + 2 * 4 + 2 * 6
    assert len(set(seeds)) == len(seeds)


def test_from_preset_accepts_changes_and_names_unknown_ones():
    model = Transformer.from_preset("tiny", vocab_size=50, num_encoder_layers=1, num_decoder_layers=1)
    assert (model.config.vocab_size, model.config.d_model, model.config.num_encoder_layers) == (50, 128, 1)
    with pytest.raises(InputError, match="unknown preset 'huge'; valid: tiny, "):
        Transformer.from_preset("huge")
    with pytest.raises(TypeError, match="depth"):
        Transformer.from_preset("tiny", depth=3)


@pytest.mark.parametrize("name", ["alignment_attention", "start_search"])
def test_parts_of_the_model_work_before_the_first_call(name):
    model, called_model = Transformer(SMALL), Transformer(SMALL)
    inputs = {"source": np.array([[3, 4, 1]]), "target": np.array([[5, 1]])}
    arguments = {"start_search": (inputs["source"], np.zeros([1, 3, SMALL.d_model], "f"), 1)}
    getattr(model, name)(*arguments.get(name, (inputs,)))
    assert model(inputs).shape == called_model(inputs).shape == (1, 2, SMALL.vocab_size)
    assert model.count_params() == sum(model.config.parameter_counts().values())
    assert weight_names(model) == weight_names(called_model)


def test_symbolic_logits_are_float32():
    model = Transformer(SMALL, dtype="mixed_bfloat16")
    inputs = {name: keras.Input([None], dtype="int32") for name in ("source", "target")}
    logits = model(inputs)
    assert (logits.dtype, logits.shape) == ("float32", (None, None, 13))
    with pytest.raises(ValueError, match="got a dict with source; to translate"):
        model({"source": inputs["source"]})

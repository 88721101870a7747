"""The Transformer: its shapes, what must not change its outputs, decoding with a cache, saving, fitting."""

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
    # All that is apart from each other.
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
    """A built model whose every weight matters: biases and scales too."""
    model = Transformer(dataclasses.replace(SMALL, **(changes or {})))
    model.build()
    rng = np.random.default_rng(5)
    for weight in model.trainable_variables:
        weight.assign(weight + 0.1 * rng.standard_normal(tuple(weight.shape)).astype("float32"))
    return model


def shared(changes: dict[str, Any] | None = None) -> Transformer:
    """The same for all tests that leave it as it is."""
    return _shared(tuple(sorted((changes or {}).items())))


@functools.cache
def _shared(changes: tuple[tuple[str, Any], ...]) -> Transformer:
    return make(dict(changes))


def logits_of(model, source=SOURCE, target=TARGET, **kwargs) -> np.ndarray:
    return np.array(model({"source": source, "target": target}, **kwargs))


@every_option
def test_logits_have_the_vocabulary_and_are_float32(changes):
    model = shared(changes)
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
    model = shared(changes)
    logits = logits_of(model)
    for position in range(4):
        changed = TARGET.copy()
        changed[:, position:] = (changed[:, position:] + 3) % 12 + 1
        perturbed = logits_of(model, target=changed)
        # The target at a position is first seen by the position after it.
        np.testing.assert_allclose(perturbed[:, : position + 1], logits[:, : position + 1], atol=1e-6)
        assert np.all(np.abs(perturbed[:, position + 1] - logits[:, position + 1]).max(-1) > 1e-4)


@pytest.mark.quick("base", "experts", "additive_window")
@every_option
def test_padding_and_neighbours_change_nothing(changes):
    model = shared(changes)
    logits = logits_of(model)
    np.testing.assert_allclose(logits_of(model, SOURCE[:1, :4], TARGET[:1]), logits[:1], atol=1e-5)
    np.testing.assert_allclose(logits_of(model, SOURCE[1:], TARGET[1:, :3]), logits[1:, :3], atol=1e-5)
    wider = np.pad(SOURCE, ((0, 0), (0, 7)))
    np.testing.assert_allclose(logits_of(model, wider), logits, atol=1e-5)


@pytest.mark.quick("base")
@every_option
def test_skipping_padding_changes_no_token(changes):
    """Neither inside a graph nor outside, where shapes are known."""
    model = shared(changes)
    batch = {"source": SOURCE, "target": TARGET}
    expected = np.array(model.states(batch).hidden)
    for states in (model.states, tf.function(model.states, autograph=False)):
        skipped = np.array(states(batch, skip_padding=True).hidden)
        np.testing.assert_allclose(skipped[TARGET != 0], expected[TARGET != 0], atol=1e-5)
        assert np.isfinite(skipped).all()
        assert np.abs(skipped - expected)[TARGET == 0].max() > 1e-4


@pytest.mark.quick("base")
@every_option
def test_attention_out_comes_with_the_logits_of_the_call(changes):
    """Inside a graph too, with shapes unknown; it tells layers and heads apart, and hides padding and the future."""
    model = shared(changes)
    compiled = tf.function(
        model.logits_and_attention,
        input_signature=[dict.fromkeys(("source", "target"), tf.TensorSpec([None, None], tf.int32))],
        autograph=False,
    )
    batch = {"source": tf.constant(SOURCE), "target": tf.constant(TARGET)}
    sizes, heads = Attentions(encoder=(6, 6), decoder=(5, 5), cross=(5, 6)), model.config.num_heads
    for actual in (model.logits_and_attention, compiled):
        logits, attentions = actual(batch)
        np.testing.assert_allclose(logits, logits_of(model), atol=1e-5)
        for weights, size in zip(map(np.array, attentions), sizes, strict=True):
            assert weights.shape == (2, 2, heads, *size) and weights.dtype == np.float32
            np.testing.assert_allclose(weights.sum(-1), 1.0, rtol=1e-5)
            assert np.abs(weights[:, 0] - weights[:, 1]).max() > 1e-3
            assert np.abs(weights[:, :, 0] - weights[:, :, 1]).max() > 1e-3
        reach = model.config.attention_window or 6
        near, earlier = np.array(window_mask(6, (reach, reach)))[0, 0], np.array(window_mask(5, (reach, 0)))[0, 0]
        for weights, seen in ((attentions.encoder, near), (attentions.cross, np.ones((5, 6), bool))):
            assert np.all(weights[0, ..., 4:] == 0) and np.all((np.array(weights)[1] > 0) == seen)
        np.testing.assert_array_equal(np.array(attentions.decoder) > 0, np.broadcast_to(earlier, (2, 2, heads, 5, 5)))


def test_every_source_token_matters():
    model = shared()
    logits = logits_of(model)
    for position in range(4):
        changed = SOURCE.copy()
        changed[0, position] = 11
        assert np.abs(logits_of(model, changed)[0, 0] - logits[0, 0]).max() > 1e-4


def test_a_source_of_nothing_but_padding_gives_numbers():
    """A row that fills up a batch; its loss weighs nothing but must not be NaN."""
    model = shared()
    assert np.all(np.isfinite(logits_of(model, np.zeros_like(SOURCE), np.zeros_like(TARGET), training=True)))


@pytest.mark.quick("3-base", "1-experts", "3-additive_window")
@every_option
@pytest.mark.parametrize("beam_size", [1, 3])
def test_decoding_with_a_cache_equals_decoding_at_once(changes, beam_size):
    """Beams swap places at every step, as a search makes them, and the cache follows."""
    model = shared(changes)
    rng = np.random.default_rng(3)
    length, rows = 5, 2 * beam_size
    search = model.start_search(SOURCE, model.encode(SOURCE), beam_size)
    cache = search.cache
    prefixes = np.zeros((rows, 1), "int32")  # the start symbol
    for step in range(length):
        assert int(cache.position) == step
        logits, cache = search.step(prefixes[:, -1], cache)
        assert keras.backend.standardize_dtype(logits.dtype) == "float32"
        # The logits at a position depend on the tokens before it: the last target may be anything.
        targets = np.concatenate([prefixes[:, 1:], np.ones((rows, 1), "int32")], 1)
        expected = logits_of(model, np.repeat(SOURCE, beam_size, 0), targets)[:, -1]
        np.testing.assert_allclose(logits, expected, atol=1e-5)
        chosen = np.concatenate([beam_size * i + rng.integers(0, beam_size, beam_size) for i in range(2)])
        own = np.array(cache.per_hypothesis.is_ancestor)
        positions = min(step + 1, model.config.attention_window or length)
        assert own.shape == (2, beam_size, positions * beam_size if beam_size > 1 else 0)
        own = own.reshape(rows, -1)[chosen].reshape(own.shape)
        cache = cache._replace(per_hypothesis=Ancestry(ops.convert_to_tensor(own)))
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
def test_searches_with_experts_find_what_teacher_forcing_says(settings):
    """Each hypothesis of a search goes to experts of its own; forced decoding sends whole targets."""
    assert_steps_are_teacher_forcing(make(OPTIONS["experts"]), {"max_length_offset": 4, **settings}, SOURCE)


def test_the_balance_loss_of_a_batch_is_the_sum_of_its_sentences():
    """Each weighs as many times as it has target tokens; padding and skipping it change nothing."""
    model = make({**OPTIONS["experts"], "gate_noise": False, "dropout_rate": 0.0})

    def loss(rows, padding: int = 0, **how) -> float:
        source, target = (np.pad(ids[rows], ((0, 0), (0, padding))) for ids in (SOURCE, TARGET))
        return float(model.states({"source": source, "target": target}, training=True, **how).auxiliary_loss)

    whole = loss(slice(None))
    assert whole > 0.01
    assert sum(loss(slice(row, row + 1), padding=row) for row in range(2)) == pytest.approx(whole, rel=1e-5)
    assert loss(slice(None), skip_padding=True) == pytest.approx(whole, rel=1e-5)
    assert loss(slice(None), padding=3) == pytest.approx(whole, rel=1e-5)
    assert loss(slice(0, 0)) == 0
    layers = [*model.encoder.layers, *model.decoder.layers]
    tokens = np.count_nonzero(TARGET, axis=1)
    with AuxiliaryLosses(SOURCE != 0) as of_source:
        memory = model.encoder(model.source_positions(model.source_embedding(SOURCE)), padding_mask(SOURCE))
    for layer in layers[: model.config.num_encoder_layers]:
        layer.feed_forward.balance_weight = 0.0
    assert whole - loss(slice(None)) == pytest.approx(np.sum(tokens * np.array(of_source.total())), rel=1e-4)
    assert memory.shape == (2, 6, 16)
    for layer in layers:
        layer.feed_forward.balance_weight = 0.0
    assert loss(slice(None)) == 0


@pytest.mark.quick("base")
@every_option
def test_coverage_is_the_attention_of_all_steps(changes):
    """The last layer's, mean over heads, of the same tokens computed all at once; logits stay as they are."""
    model, beam_size = shared(changes), 2
    plain, covered = (
        model.start_search(SOURCE, model.encode(SOURCE), beam_size, capabilities=frozenset(capabilities))
        for capabilities in ((), (COVERAGE,))
    )
    inputs = np.array([[0, 5, 7], [0, 3, 3], [0, 4, 4], [0, 5, 7]])  # of each hypothesis
    sources, targets = np.repeat(SOURCE, beam_size, axis=0), np.pad(inputs[:, 1:], [(0, 0), (0, 1)], constant_values=1)
    _, attentions = model.logits_and_attention({"source": sources, "target": targets})
    weights = np.array(attentions.cross)[:, -1].mean(axis=1)  # --> [batch * beam, steps, source_len]
    expected = ((sources == 0)[:, None] + weights.cumsum(axis=1)).reshape(2, beam_size, 3, -1)
    plain_cache, covered_cache = plain.cache, covered.cache
    assert plain_cache.coverage.shape == (2, beam_size, 0)
    for place in range(3):
        logits, plain_cache = plain.step(inputs[:, place], plain_cache)
        actual, covered_cache = covered.step(inputs[:, place], covered_cache)
        np.testing.assert_allclose(covered_cache.coverage, expected[:, :, place], atol=1e-5)
        np.testing.assert_allclose(actual, logits, atol=1e-5)


@pytest.mark.quick("base")
@every_option
def test_steps_with_weights_in_bfloat16_are_as_exact_as_these(changes):
    if "num_experts" in changes:  # rounding may change which experts are picked, so all are
        changes = {**changes, "experts_per_token": changes["num_experts"]}
    model = shared(changes)
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


def test_nothing_of_the_cache_but_ancestry_is_kept_a_hypothesis():
    model = shared()
    cache = model.start_search(SOURCE, model.encode(SOURCE), 3).cache
    assert [tuple(x.shape) for x in keras.tree.flatten(cache.per_hypothesis)] == [(2, 3, 0)]
    for nest, lengths in ((cache.per_sentence, {0}), (cache.source, {1, SOURCE.shape[1]})):
        assert {tuple(x.shape)[0] for x in keras.tree.flatten(nest)} == {2}
        assert {tuple(x.shape)[2] for x in keras.tree.flatten(nest)} == lengths


def test_the_gain_of_attention_scales_its_first_three_kernels_in_every_layer():
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
    tied, separate = shared(), make({"tie_embeddings": False})
    assert tied.source_embedding is tied.target_embedding is tied.output_embedding
    matrices = [weight for weight in separate.trainable_variables if tuple(weight.shape) == (13, 16)]
    assert len(matrices) == 3
    assert separate.count_params() - tied.count_params() == 2 * 13 * 16


@pytest.mark.quick("base")
@every_option
def test_dropout_is_a_function_of_the_seed(changes):
    model = shared(changes)
    seeds = [ops.convert_to_tensor(words, "int32") for words in ([1, 2], [1, 3])]
    once = logits_of(model, seed=seeds[0], training=True)
    np.testing.assert_array_equal(once, logits_of(model, seed=seeds[0], training=True))
    assert np.abs(once - logits_of(model, seed=seeds[1], training=True)).max() > 1e-3
    np.testing.assert_array_equal(logits_of(model, seed=seeds[0]), logits_of(model))
    assert np.abs(logits_of(model, training=True) - logits_of(model, training=True)).max() > 1e-3


def test_every_site_of_dropout_has_a_seed_of_its_own(monkeypatch):
    """Otherwise masks of equal shapes, such as those of neighbouring layers, would be equal."""
    model = make(OPTIONS["t2t"])
    drawn = []

    def dropout(inputs, rate, seed):
        drawn.append(tuple(np.array(seed).tolist()))
        return inputs

    monkeypatch.setattr(kernels, "dropout", dropout)
    logits_of(model, seed=ops.convert_to_tensor([1, 2], "int32"), training=True)
    # Two embeddings; in an encoder layer two sub-layers, attention weights, ReLU; in a decoder layer 3 + 2 + 1.
    assert len(drawn) == 2 + 2 * 4 + 2 * 6
    assert len(set(drawn)) == len(drawn)


def test_from_preset_takes_changes_and_names_what_it_does_not_know():
    model = Transformer.from_preset("tiny", vocab_size=50, num_encoder_layers=1, num_decoder_layers=1)
    assert (model.config.vocab_size, model.config.d_model, model.config.num_encoder_layers) == (50, 128, 1)
    with pytest.raises(InputError, match="unknown preset 'huge'; valid: tiny, "):
        Transformer.from_preset("huge")
    with pytest.raises(TypeError, match="depth"):
        Transformer.from_preset("tiny", depth=3)


@pytest.mark.parametrize("name", ["alignment_attention", "start_search"])
def test_a_part_may_be_asked_for_before_the_whole(name):
    model, whole = Transformer(SMALL), Transformer(SMALL)
    inputs = {"source": np.array([[3, 4, 1]]), "target": np.array([[5, 1]])}
    arguments = {"start_search": (inputs["source"], np.zeros([1, 3, SMALL.d_model], "f"), 1)}
    getattr(model, name)(*arguments.get(name, (inputs,)))
    assert model(inputs).shape == whole(inputs).shape == (1, 2, SMALL.vocab_size)
    assert model.count_params() == sum(model.config.parameter_counts().values())
    assert weight_names(model) == weight_names(whole)


def test_logits_are_float32_also_before_there_are_any():
    model = Transformer(SMALL, dtype="mixed_bfloat16")
    inputs = {name: keras.Input([None], dtype="int32") for name in ("source", "target")}
    logits = model(inputs)
    assert (logits.dtype, logits.shape) == ("float32", (None, None, 13))
    with pytest.raises(ValueError, match="got a dict with source; to translate"):
        model({"source": inputs["source"]})

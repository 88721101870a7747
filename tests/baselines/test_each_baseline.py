"""The contract of models, for each baseline family."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.models.contract import BFLOAT16, COVERAGE, States
from tests.baselines.untrained import BATCH, SOURCE, TARGET, VOCAB, untrained
from tests.training.tiny_families import TINY, tiny_family

FAMILIES = sorted(TINY.keys() - {"transformer"})
each_family = pytest.mark.parametrize("family", FAMILIES)


@functools.cache
def make(family: str, **changes):
    return untrained(tiny_family(family, vocab_size=VOCAB, **changes))


@each_family
def test_a_target_depends_only_on_earlier_targets(family):
    model, length = make(family), TARGET.shape[1]
    expected = np.array(model(BATCH))
    for changed in range(length):
        target = TARGET.copy()
        target[:, changed] = 17
        logits = np.array(model({"source": SOURCE, "target": target}))
        np.testing.assert_allclose(logits[:, : changed + 1], expected[:, : changed + 1], atol=1e-6)
        if changed < length - 1:
            assert np.abs(logits[2, changed + 1] - expected[2, changed + 1]).max() > 1e-3


@each_family
@pytest.mark.parametrize("name", ["states", "encode"])
def test_states_and_encode_work_before_the_first_call(family, name):
    model = type(make(family))(tiny_family(family, vocab_size=VOCAB))
    getattr(model, name)(SOURCE if name == "encode" else BATCH)
    assert model(BATCH).shape == (*TARGET.shape, VOCAB)
    assert model.count_params() == sum(model.config.parameter_counts().values())


@each_family
@pytest.mark.parametrize(("source_len", "target_len"), [(0, 3), (4, 0)])
def test_empty_sides_have_states_without_positions(family, source_len, target_len):
    batch = {"source": np.zeros([2, source_len], np.int32), "target": np.zeros([2, target_len], np.int32)}
    assert make(family).states(batch).hidden.shape[:2] == (2, target_len)


@each_family
def test_steps_equal_the_call_and_sum_its_attention(family):
    model = make(family)
    has_attention = COVERAGE in model.capabilities
    search = model.start_search(SOURCE, model.encode(SOURCE), 1, capabilities=model.capabilities & {COVERAGE})
    cache, step_logits = search.cache, []
    for token_ids in np.pad(TARGET, ((0, 0), (1, 0)))[:, :-1].T:
        logits, cache = search.step(tf.constant(token_ids), cache)
        step_logits.append(logits)
    np.testing.assert_allclose(np.stack(step_logits, axis=1), model(BATCH), rtol=1e-5, atol=2e-5)
    assert has_attention == (family != "bytenet")
    if has_attention:
        _, (encoder, decoder, attention) = model.logits_and_attention(BATCH)
        assert encoder.shape[1:] == (0, 0, SOURCE.shape[1], SOURCE.shape[1])
        assert decoder.shape[1:] == (0, 0, TARGET.shape[1], TARGET.shape[1])
        mean = np.mean(attention[:, :, 0], axis=1)  # over the layers
        np.testing.assert_allclose(model.alignment_attention(BATCH), mean, atol=1e-6)
        np.testing.assert_allclose(cache.coverage[:, 0], np.sum(mean, axis=1) + (SOURCE == 0), atol=1e-5)


@each_family
def test_bfloat16_logits_are_close(family):
    model = make(family)
    memory, token_ids = model.encode(SOURCE), tf.constant([3, 8, 11])
    searches = [
        model.start_search(SOURCE, memory, 1, capabilities=capabilities)
        for capabilities in (frozenset(), frozenset({BFLOAT16}))
    ]
    exact, rounded = (np.array(search.step(token_ids, search.cache)[0]) for search in searches)
    assert 0 < np.abs(exact - rounded).max() < 0.03 * np.abs(exact).max()


@each_family
def test_bfloat16_products_keep_the_bias_in_float32(family):
    model = make(family)
    head = model.output_head
    bias = np.random.default_rng(1).standard_normal(VOCAB).astype("float32")
    head.bias.assign(bias)
    dtype, logits = model.step_products(frozenset({BFLOAT16}))
    hidden = tf.zeros([1, head.table.shape[1]], tf.bfloat16)
    assert dtype == "bfloat16"
    np.testing.assert_array_equal(logits(hidden)[0], bias)


@each_family
def test_dropout_is_a_function_of_its_seed(family):
    model = make(family, dropout_rate=0.5)

    def hidden(seed: int, training: bool = True) -> np.ndarray:
        states = model.states(BATCH, seed=tf.constant([seed, 0]), training=training)
        assert isinstance(states, States) and (float(states.auxiliary_loss) > 0) == (family == "moe_rnn")
        return np.array(states.hidden)

    np.testing.assert_array_equal(hidden(1), hidden(1))
    assert np.abs(hidden(1) - hidden(2)).max() > 0.01
    np.testing.assert_array_equal(hidden(1, training=False), hidden(2, training=False))

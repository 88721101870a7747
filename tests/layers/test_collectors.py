"""Side results of layers go only to the innermost collector of the same pass."""

import threading
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.layers import Encoder, MixtureOfExperts, MultiHeadAttention
from t2t_keras.layers.collectors import AttentionWeights, AuxiliaryLosses

EXPERTS: dict[str, Any] = {"num_heads": 1, "d_key": 4, "d_ff": 9, "num_experts": 3, "experts_per_token": 1}


@pytest.fixture
def layer() -> Encoder:
    encoder = Encoder(2, **EXPERTS)
    encoder.build((None, None, 6))
    return encoder


@pytest.fixture
def x(rng) -> np.ndarray:
    return rng.standard_normal((3, 4, 6)).astype("float32")


def test_only_the_innermost_open_collector_receives_results(layer, x):
    with AuxiliaryLosses() as outer:
        with AuxiliaryLosses() as inner, AttentionWeights() as attention:
            layer(x)
        assert (len(outer.losses), len(inner.losses), len(attention.weights)) == (0, 2, 2)
        layer(x)
    layer(x)
    assert (len(outer.losses), len(inner.losses), len(attention.weights)) == (2, 2, 2)


def test_a_collector_closes_after_an_error(layer, x):
    with pytest.raises(ZeroDivisionError), AuxiliaryLosses():
        raise ZeroDivisionError
    assert AuxiliaryLosses.innermost() is None


def test_an_empty_collector_has_a_total_of_zero():
    assert float(AuxiliaryLosses().total()) == 0


def test_experts_compute_no_loss_without_a_collector(layer, x, monkeypatch):
    with AuxiliaryLosses():
        expected = layer(x)
    monkeypatch.setattr(MixtureOfExperts, "_balance_loss", None)
    np.testing.assert_array_equal(layer(x), expected)


def test_each_thread_has_its_own_collectors(layer, x):
    """The threads of replicas collect this way."""
    actual, has_started, may_end = [], threading.Barrier(2), threading.Barrier(2)

    def run(times: int) -> None:
        with AuxiliaryLosses() as collector:
            has_started.wait()
            for _ in range(times):
                layer(x)
            may_end.wait()
        actual.append((times, len(collector.losses)))

    threads = [threading.Thread(target=run, args=(times,)) for times in (1, 3)]
    with AuxiliaryLosses() as own_loss:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(actual) == [(1, 2), (3, 6)] and not own_loss.losses


def test_each_trace_has_its_own_collectors(layer, x):
    """Traces two shapes with gradients, then runs eagerly: each pass returns its own losses."""

    @tf.function(reduce_retracing=False, autograph=False)
    def loss_and_gradient(x):
        with tf.GradientTape() as tape, AuxiliaryLosses() as collector:
            layer(x, seed=tf.constant([1, 2]), training=True)
            loss = tf.reduce_sum(collector.total())
        return loss, tape.gradient(loss, layer.layers[1].feed_forward.gate_kernel.value)

    parts = [loss_and_gradient(tf.constant(x[:count])) for count in (3, 1, 3)]
    np.testing.assert_array_equal(parts[0][0], parts[2][0])
    assert float(parts[0][0]) > float(parts[1][0]) > 0
    assert all(np.abs(gradient).max() > 0 for _, gradient in parts)
    with AuxiliaryLosses() as collector:
        layer(x, seed=tf.constant([1, 2]), training=True)
    np.testing.assert_allclose(tf.reduce_sum(collector.total()), parts[0][0], rtol=1e-5)


def test_collectors_do_not_affect_functional_models(x):
    inputs = keras.Input((None, 6))
    model = keras.Model(inputs, Encoder(1, **EXPERTS)(inputs))
    expected = model(x)
    with AuxiliaryLosses(np.ones((3, 4), bool)) as collector:
        np.testing.assert_array_equal(model(x), expected)
    assert collector.total().shape == (3,)


@pytest.mark.parametrize("window", [None, (1, 1)])
def test_collected_attention_weights_exclude_dropout(window):
    layer, x = (
        MultiHeadAttention(4, 3, 3, dropout_rate=0.5, window=window),
        np.random.default_rng(1).normal(size=(2, 5, 6)),
    )
    with AttentionWeights() as collector:
        outputs = layer(x, x, training=True, seed=np.array([1, 2], np.int32))
    (weights,) = collector.weights
    assert tuple(weights.shape) == (2, 4, 5, 5)  # [batch, heads, queries, keys]
    np.testing.assert_allclose(np.sum(weights, -1), 1, rtol=1e-5)
    assert (np.array(weights)[:, :, 0, 4] == 0).all() == (window is not None)
    np.testing.assert_allclose(outputs, layer(x, x, training=True, seed=np.array([1, 2], np.int32)), atol=1e-5)

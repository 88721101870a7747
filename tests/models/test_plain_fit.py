"""The Transformer in Keras's own `fit`."""

import dataclasses

import keras
import numpy as np
import pytest

from t2t_keras.config import TransformerConfig
from t2t_keras.losses import SmoothedCrossEntropy
from t2t_keras.models.transformer import Transformer
from t2t_keras.schedules import PaperSchedule

SMALL = TransformerConfig(
    vocab_size=13, num_encoder_layers=2, num_decoder_layers=2, d_model=16, d_ff=24, num_heads=2, dropout_rate=0.2
)
SOURCE = np.array([[3, 4, 5, 1, 0, 0], [6, 7, 8, 9, 3, 1]], "int32")
TARGET = np.array([[5, 6, 7, 8, 1], [9, 3, 1, 0, 0]], "int32")


def test_plain_fit_adds_the_balance_loss_of_experts():
    """Over tokens, as training itself has it."""
    model = Transformer(dataclasses.replace(SMALL, num_experts=4, experts_per_token=2, d_expert=9, balance_weight=7.0))
    model.build()
    inputs, seed = {"source": SOURCE, "target": TARGET}, np.array([1, 2], "int32")
    balance = model.states(inputs, seed=seed, training=True).auxiliary_loss
    model(inputs, seed=seed, training=True)
    assert float(sum(model.losses)) == pytest.approx(float(balance) / np.count_nonzero(TARGET), rel=1e-5)
    assert float(balance) > 0.1
    model(inputs)
    assert not model.losses


@pytest.mark.integration
def test_plain_fit_learns_to_copy():
    keras.utils.set_random_seed(1)
    rng = np.random.default_rng(1)
    lengths = rng.integers(2, 6, 1024)
    tokens = np.where(np.arange(6) < lengths[:, None], rng.integers(3, 13, (1024, 6)), 0).astype("int32")
    tokens[np.arange(1024), lengths] = 1
    config = dataclasses.replace(SMALL, d_model=32, d_ff=64, num_encoder_layers=1, num_decoder_layers=1, dropout_rate=0)
    model = Transformer(config)
    schedule = PaperSchedule(32, warmup_steps=50, scale=1.5)
    model.compile(keras.optimizers.Adam(schedule, 0.9, 0.98, 1e-9), SmoothedCrossEntropy(0.1))
    inputs = {"source": tokens, "target": tokens}
    losses = model.fit(inputs, tokens, batch_size=64, epochs=20, verbose=0).history["loss"]
    assert losses[-1] < 0.5 * losses[0]
    predicted = model.predict(inputs, verbose=0).argmax(-1)
    assert np.mean(predicted[tokens != 0] == tokens[tokens != 0]) > 0.95

"""The Transformer in Keras's `fit`."""

import dataclasses

import numpy as np
import pytest

from t2t_keras.config import TransformerConfig
from t2t_keras.models.transformer import Transformer

SMALL = TransformerConfig(
    vocab_size=13, num_encoder_layers=2, num_decoder_layers=2, d_model=16, d_ff=24, num_heads=2, dropout_rate=0.2
)
SOURCE = np.array([[3, 4, 5, 1, 0, 0], [6, 7, 8, 9, 3, 1]], "int32")
TARGET = np.array([[5, 6, 7, 8, 1], [9, 3, 1, 0, 0]], "int32")


def test_plain_fit_adds_the_balance_loss_of_experts():
    """The loss is summed over tokens, as in the project's own training."""
    model = Transformer(dataclasses.replace(SMALL, num_experts=4, experts_per_token=2, d_expert=9, balance_weight=7.0))
    model.build()
    inputs, seed = {"source": SOURCE, "target": TARGET}, np.array([1, 2], "int32")
    balance = model.states(inputs, seed=seed, training=True).auxiliary_loss
    model(inputs, seed=seed, training=True)
    assert float(sum(model.losses)) == pytest.approx(float(balance) / np.count_nonzero(TARGET), rel=1e-5)
    assert float(balance) > 0.1
    model(inputs)
    assert not model.losses

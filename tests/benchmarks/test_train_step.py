"""The networks in keras.layers compute the same as the models that a training step is compared with."""

import keras
import numpy as np
import pytest

from benchmarks import conv_s2s_in_keras, rnn_attention_in_keras
from benchmarks.train_step import sizes_of
from benchmarks.train_step_engines import shifted
from benchmarks.transformer_preset import transformer_preset
from t2t_keras.models import families
from tests.training.tiny_families import tiny_family

pytestmark = pytest.mark.integration

SOURCE = np.array([[5, 6, 7, 1], [9, 1, 0, 0]], np.int32)
TARGET = np.array([[3, 4, 5, 6, 1], [8, 1, 0, 0, 0]], np.int32)


@pytest.mark.parametrize(
    ("preset", "fields"), [("moe_tiny", "num_experts, .*"), ("table3_b_dk16", "d_key"), ("t2t_base", ".*use_attent.*")]
)
def test_a_preset_that_the_engines_cannot_build_is_rejected(preset, fields):
    assert sizes_of(transformer_preset("tiny"), 100, 0.1)["num_layers"] == 4
    with pytest.raises(SystemExit, match=f"^the engines of this benchmark do not support {fields}, which the preset"):
        sizes_of(transformer_preset(preset), 100, 0.1)


def assert_equal(model, network, weights: list[np.ndarray]) -> None:
    network((SOURCE, shifted(TARGET)))
    network.set_weights(weights)
    actual, expected = network((SOURCE, shifted(TARGET))).numpy(), model({"source": SOURCE, "target": TARGET}).numpy()
    np.testing.assert_allclose(actual[TARGET != 0], expected[TARGET != 0], atol=1e-4)


def by_path(model) -> dict[str, np.ndarray]:
    return {weight.path.split("/", 1)[1]: weight.numpy() for weight in model.trainable_variables}


def conv_s2s_weights(model) -> list[np.ndarray]:
    """Returns the weights in the order of the network in keras.layers."""
    by_name = by_path(model)

    def linear(name: str) -> list[np.ndarray]:
        return [by_name[f"{name}/kernel"][0], by_name[f"{name}/bias"], by_name[f"{name}/scale"]]

    def stack(side: str, names: list[str]) -> list[np.ndarray]:
        arrays = [*linear(f"{side}_inputs"), *linear(f"{side}_outputs")]
        for name in names:
            arrays += [by_name[f"{name}/convolution/{part}"] for part in ("kernel", "bias", "scale")]
        for part in ("projection", "query", "output"):
            for name in names:
                arrays += linear(f"{name}/{part}") if f"{name}/{part}/kernel" in by_name else []
        return arrays

    places = ("source_embedding", "target_embedding", "source_positions", "target_positions")
    return [
        *(by_name[f"{place}/table"] for place in places),
        *stack("encoder", [layer.name for layer in model.encoder_layers]),
        *stack("decoder", [layer.name for layer in model.decoder_layers]),
        by_name["output_embedding/table"].T,
        by_name["output_embedding/bias"],
    ]


def rnn_attention_weights(model) -> list[np.ndarray]:
    """Returns the weights in the order of the network in keras.layers."""
    by_name = by_path(model)

    def lstm(name: str) -> list[np.ndarray]:
        return [by_name[f"{name}/{part}"] for part in ("kernel", "recurrent_kernel", "bias")]

    attention = [by_name[f"decoder_1/attention/{part}"] for part in ("query_kernel", "memory_kernel", "bias", "score")]
    return [
        by_name["target_embedding/table"],
        by_name["source_embedding/table"],
        *lstm("encoder_forward_1"),
        *lstm("encoder_backward_1"),
        *(array for layer in model.encoder_layers for array in lstm(layer.name)),
        *lstm("decoder_1/lstm"),
        *attention,
        *(array for layer in model.decoder_layers for array in lstm(layer.name)),
        *([by_name["readout/kernel"]] if model.readout else []),
        by_name["output_embedding/table"].T,
        by_name["output_embedding/bias"],
    ]


def test_conv_s2s_in_keras_layers_equals_the_model():
    keras.utils.set_random_seed(1)
    config = tiny_family("conv_s2s", vocab_size=20)
    network = conv_s2s_in_keras.Network(sizes_of(config, 20, 0.0))
    model = families.make_model(config)
    assert_equal(model, network, conv_s2s_weights(model))


def test_rnn_attention_in_keras_layers_equals_the_model():
    keras.utils.set_random_seed(1)
    config = tiny_family("rnn_attention", vocab_size=20, num_encoder_layers=4, num_decoder_layers=3, num_units=6)
    network = rnn_attention_in_keras.Network(sizes_of(config, 20, 0.0))
    model = families.make_model(config)
    assert_equal(model, network, rnn_attention_weights(model))

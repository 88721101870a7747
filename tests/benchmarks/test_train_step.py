"""The network that a training step is compared with is the same network."""

import keras
import numpy as np
from tiny_families import tiny_family

from benchmarks.conv_s2s_in_keras import Network
from benchmarks.train_step import sizes_of
from benchmarks.train_step_engines import shifted
from t2t_keras.models import families


def weights_in_order(model) -> list[np.ndarray]:
    """Those of a `ConvS2S` in the order of the network in keras.layers."""
    by_name = {weight.path.split("/", 1)[1]: weight.numpy() for weight in model.trainable_variables}

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


def test_conv_s2s_in_keras_layers_computes_what_ours_does():
    keras.utils.set_random_seed(1)
    config = tiny_family("conv_s2s", vocab_size=20)
    model, network = families.make_model(config), Network(sizes_of(config, 20, 0.0))
    source = np.array([[5, 6, 7, 1], [9, 1, 0, 0]], np.int32)
    target = np.array([[3, 4, 5, 6, 1], [8, 1, 0, 0, 0]], np.int32)
    network((source, shifted(target)))
    network.set_weights(weights_in_order(model))
    found, expected = network((source, shifted(target))).numpy(), model({"source": source, "target": target}).numpy()
    np.testing.assert_allclose(found[target != 0], expected[target != 0], atol=1e-4)

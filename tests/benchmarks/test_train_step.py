"""The network that a training step is compared with is the same network."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest

from benchmarks import conv_s2s_in_keras, rnn_attention_in_keras
from benchmarks import train_step as module
from benchmarks.train_step import Batches, report, sizes_of, write_batches
from benchmarks.train_step_engines import shifted
from benchmarks.transformer_preset import transformer_preset
from t2t_keras.models import families
from tests.training.tiny_families import tiny_family

pytestmark = pytest.mark.integration

SOURCE = np.array([[5, 6, 7, 1], [9, 1, 0, 0]], np.int32)
TARGET = np.array([[3, 4, 5, 6, 1], [8, 1, 0, 0, 0]], np.int32)


def test_only_others_are_peers_and_all_are_compared_with_a_large_product(capsys):
    def worker(name, seconds):
        values = {"seconds": seconds, "cpu_seconds": 1.0, "peak_gib": 1.0, "page_faults": 50, "flops_per_second": 800.0}
        return SimpleNamespace(name=name, turns=[1], about={"parameters": 1}, median=values.get)

    batches = Batches(1, 50, 100, 100, 1.0, 10.0)
    workers = [worker("ours", 1.0), worker("ours_bfloat16", 0.5), worker("matrix", 0.1)]
    report(workers, {}, batches, 200.0, None)
    output = capsys.readouterr().out
    assert "best peer" not in output and "| matrix" not in output
    assert "| ours | 100 | 1.00 | 0.25 | 1,000 | 1.00 | 50 |" in output
    report([*workers, worker("keras", 2.0)], {}, batches, 200.0, None)
    assert "ours / best peer: 2.00" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("preset", "others"), [("moe_tiny", "num_experts, .*"), ("table3_b_dk16", "d_key"), ("t2t_base", ".*use_attent.*")]
)
def test_a_preset_that_the_engines_cannot_build_is_refused(preset, others):
    assert sizes_of(transformer_preset("tiny"), 100, 0.1)["num_layers"] == 4
    with pytest.raises(SystemExit, match=f"^the engines of this benchmark do not support {others}, which the preset"):
        sizes_of(transformer_preset(preset), 100, 0.1)


def test_an_epoch_of_fewer_batches_is_refused(tmp_path, monkeypatch):
    batch = np.ones((2, 3), np.int32)
    data = SimpleNamespace(tokenizer=SimpleNamespace(vocab_size=10), split=lambda name: None)
    monkeypatch.setattr(module.PreparedData, "open", lambda *arguments: data)
    monkeypatch.setattr(module, "bucketed_batches", lambda corpus, tokens: iter([(batch, batch)] * 3))
    arguments = "data", "bucketed", 100
    with pytest.raises(SystemExit, match="^an epoch has 3 batches of 100 tokens; --batches=8 is more$"):
        write_batches(*arguments, 8, str(tmp_path / "batches.npz"))
    write_batches(*arguments, 3, str(tmp_path / "batches.npz"))
    assert len(np.load(tmp_path / "batches.npz").files) == 6


def check_equal(model, network, weights: list[np.ndarray]) -> None:
    network((SOURCE, shifted(TARGET)))
    network.set_weights(weights)
    found, expected = network((SOURCE, shifted(TARGET))).numpy(), model({"source": SOURCE, "target": TARGET}).numpy()
    np.testing.assert_allclose(found[TARGET != 0], expected[TARGET != 0], atol=1e-4)


def by_path(model) -> dict[str, np.ndarray]:
    return {weight.path.split("/", 1)[1]: weight.numpy() for weight in model.trainable_variables}


def conv_s2s_weights(model) -> list[np.ndarray]:
    """In the order of the network in keras.layers."""
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
    """In the order of the network in keras.layers."""
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


def test_conv_s2s_in_keras_layers_computes_what_ours_does():
    keras.utils.set_random_seed(1)
    config = tiny_family("conv_s2s", vocab_size=20)
    network = conv_s2s_in_keras.Network(sizes_of(config, 20, 0.0))
    model = families.make_model(config)
    check_equal(model, network, conv_s2s_weights(model))


def test_rnn_attention_in_keras_layers_computes_what_ours_does():
    keras.utils.set_random_seed(1)
    config = tiny_family("rnn_attention", vocab_size=20, num_encoder_layers=4, num_decoder_layers=3, num_units=6)
    network = rnn_attention_in_keras.Network(sizes_of(config, 20, 0.0))
    model = families.make_model(config)
    check_equal(model, network, rnn_attention_weights(model))

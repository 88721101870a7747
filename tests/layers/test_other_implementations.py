"""The same weights in other people's Transformers give the same outputs, loss and gradients."""

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from t2t_keras.config import TransformerConfig
from t2t_keras.layers import DecoderLayer, EncoderLayer, SinusoidalPositions, causal_mask
from t2t_keras.losses import loss_sum_and_count
from t2t_keras.models.transformer import Transformer

D_MODEL, HEADS, D_FF, VOCAB, EPSILON = 16, 2, 24, 13, 1e-5
SOURCE = np.array([[3, 4, 5, 1, 0, 0], [6, 7, 8, 9, 3, 1]], "int32")
TARGET = np.array([[5, 6, 7, 8, 1], [9, 3, 1, 0, 0]], "int32")
every_position_of_the_norm = pytest.mark.parametrize("norm_position", ["post", "pre"])


def randomised(layer, rng):
    """The layer, built, with weights that all matter."""
    for weight in layer.trainable_variables:
        weight.assign(weight + 0.3 * rng.standard_normal(tuple(weight.shape)).astype("float32"))
    return layer


def as_torch(values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What belongs to each parameter of an `nn.Transformer`, of arrays by the paths of this project's variables.

    Torch multiplies by the transposes of kernels, and keeps queries, keys and values in one of them.
    """
    found = {}
    for stack, attentions in (
        ("encoder", {"self_attention": "self_attn"}),
        ("decoder", {"self_attention": "self_attn", "cross_attention": "multihead_attn"}),
    ):
        sublayers = [*attentions, "feed_forward"]
        for index in range(2):
            ours, theirs = f"{stack}/layer_{index}", f"{stack}.layers.{index}"
            for name, other in attentions.items():
                for kind, end in (("kernel", "weight"), ("bias", "bias")):
                    joined = [values[f"{ours}/{name}/{part}_{kind}"].T for part in ("query", "key", "value")]
                    found[f"{theirs}.{other}.in_proj_{end}"] = np.concatenate(joined)
                    found[f"{theirs}.{other}.out_proj.{end}"] = values[f"{ours}/{name}/output_{kind}"].T
            for number, part in enumerate(("inner", "outer"), 1):
                found[f"{theirs}.linear{number}.weight"] = values[f"{ours}/feed_forward/{part}_kernel"].T
                found[f"{theirs}.linear{number}.bias"] = values[f"{ours}/feed_forward/{part}_bias"]
            for number, name in enumerate(sublayers, 1):
                found[f"{theirs}.norm{number}.weight"] = values[f"{ours}/{name}_residual/norm/scale"]
                found[f"{theirs}.norm{number}.bias"] = values[f"{ours}/{name}_residual/norm/offset"]
        if f"{stack}/final_norm/scale" in values:
            found[f"{stack}.norm.weight"] = values[f"{stack}/final_norm/scale"]
            found[f"{stack}.norm.bias"] = values[f"{stack}/final_norm/offset"]
    return found


def by_path(variables, values) -> dict[str, np.ndarray]:
    """Arrays by the paths of variables within their model."""
    return {
        variable.path.partition("/")[2]: np.array(tf.convert_to_tensor(value))
        for variable, value in zip(variables, values, strict=True)
    }


@every_position_of_the_norm
def test_torchs_transformer_has_the_same_logits_loss_and_gradients(rng, norm_position):
    torch = pytest.importorskip("torch")
    config = TransformerConfig(
        vocab_size=VOCAB,
        num_encoder_layers=2,
        num_decoder_layers=2,
        d_model=D_MODEL,
        d_ff=D_FF,
        num_heads=HEADS,
        dropout_rate=0.0,
        norm_position=norm_position,
        layer_norm_epsilon=EPSILON,
    )
    model = Transformer(config)
    model.build()
    variables = randomised(model, rng).trainable_variables
    with tf.GradientTape() as tape:
        logits = model({"source": SOURCE, "target": TARGET})
        loss, _ = loss_sum_and_count(TARGET, logits, 0.1)
    gradients = by_path(variables, tape.gradient(loss, [variable.value for variable in variables]))
    weights = by_path(variables, [variable.value for variable in variables])

    other = torch.nn.Transformer(
        D_MODEL, HEADS, 2, 2, D_FF, 0.0, layer_norm_eps=EPSILON, batch_first=True, norm_first=norm_position == "pre"
    )
    if norm_position == "post":  # the paper has no normalisation after the last layer's
        other.encoder.norm = other.decoder.norm = None
    other.load_state_dict({name: torch.tensor(value) for name, value in as_torch(weights).items()})
    table = torch.tensor(weights["target_embedding/table"], requires_grad=True)

    def embedded(ids: np.ndarray):
        ids = torch.tensor(ids, dtype=torch.int64)
        positions = torch.tensor(np.array(SinusoidalPositions()(np.zeros((1, ids.shape[1], D_MODEL), "float32"))))
        return table[ids] * D_MODEL**0.5 * (ids != 0)[..., None] + positions

    padding = torch.tensor(SOURCE == 0)
    states = other(
        embedded(SOURCE),
        embedded(np.pad(TARGET, ((0, 0), (1, 0)))[:, :-1]),
        tgt_mask=torch.triu(torch.ones(5, 5, dtype=torch.bool), 1),
        src_key_padding_mask=padding,
        memory_key_padding_mask=padding,
    )
    other_logits = states @ table.T
    labels = torch.tensor(TARGET, dtype=torch.int64)
    other_loss = torch.nn.functional.cross_entropy(
        other_logits.reshape(-1, VOCAB), labels.reshape(-1), ignore_index=0, reduction="sum", label_smoothing=0.1
    )
    other_loss.backward()

    np.testing.assert_allclose(logits, other_logits.detach().numpy(), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(loss, other_loss.item(), rtol=1e-5)
    expected = {name: parameter.grad.numpy() for name, parameter in other.named_parameters()}
    found = as_torch(gradients)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        np.testing.assert_allclose(found[name], gradient, rtol=1e-3, atol=1e-4, err_msg=name)
    np.testing.assert_allclose(gradients["target_embedding/table"], table.grad.numpy(), rtol=1e-3, atol=1e-4)


def copy_to_keras_hub(layer, other) -> None:
    """This project's weights into a layer of KerasHub, which keeps a projection's heads on an axis of their own."""
    own = by_path(layer.trainable_variables, [variable.value for variable in layer.trainable_variables])
    attentions = [name for name in ("self_attention", "cross_attention") if f"{name}/query_kernel" in own]
    named = {
        "feedforward_intermediate_dense/kernel": own["feed_forward/inner_kernel"],
        "feedforward_intermediate_dense/bias": own["feed_forward/inner_bias"],
        "feedforward_output_dense/kernel": own["feed_forward/outer_kernel"],
        "feedforward_output_dense/bias": own["feed_forward/outer_bias"],
        "feedforward_layer_norm/gamma": own["feed_forward_residual/norm/scale"],
        "feedforward_layer_norm/beta": own["feed_forward_residual/norm/offset"],
    }
    for name in attentions:
        named[f"{name}_layer_norm/gamma"] = own[f"{name}_residual/norm/scale"]
        named[f"{name}_layer_norm/beta"] = own[f"{name}_residual/norm/offset"]
        for part in ("query", "key", "value", "output"):
            other_part = "attention_output" if part == "output" else part
            for kind in ("kernel", "bias"):
                named[f"{name}/{other_part}/{kind}"] = own[f"{name}/{part}_{kind}"]
    variables = {variable.path.replace("_attention_layer/", "_attention/"): variable for variable in other.weights}
    assert len(variables) == len(named)
    for path, variable in variables.items():
        (value,) = [value for name, value in named.items() if path.endswith(f"/{name}")]
        variable.assign(value.reshape(variable.shape))


@every_position_of_the_norm
def test_keras_hubs_layers_have_the_same_outputs(rng, norm_position):
    keras_hub = pytest.importorskip("keras_hub")
    settings = {"num_heads": HEADS, "layer_norm_epsilon": EPSILON}
    own = {**settings, "d_ff": D_FF, "norm_position": norm_position}
    theirs = {**settings, "intermediate_dim": D_FF, "normalize_first": norm_position == "pre"}
    source = rng.standard_normal((2, 6, D_MODEL)).astype("float32")
    target = rng.standard_normal((2, 5, D_MODEL)).astype("float32")
    is_token = SOURCE != 0

    encoder, decoder = EncoderLayer(**own), DecoderLayer(**own)
    encoder.build(source.shape)
    decoder.build(target.shape, source.shape)
    other_encoder = keras_hub.layers.TransformerEncoder(**theirs)
    other_decoder = keras_hub.layers.TransformerDecoder(**theirs)
    other_encoder.build(source.shape)
    other_decoder.build(target.shape, source.shape)
    for layer, other in ((encoder, other_encoder), (decoder, other_decoder)):
        copy_to_keras_hub(randomised(layer, rng), other)

    memory = encoder(source, is_token[:, None, None, :])
    other_memory = other_encoder(source, padding_mask=is_token)
    np.testing.assert_allclose(memory, other_memory, rtol=1e-4, atol=1e-4)
    states = decoder(target, memory, causal_mask(5), is_token[:, None, None, :])
    other_states = other_decoder(target, other_memory, encoder_padding_mask=is_token)
    np.testing.assert_allclose(states, other_states, rtol=1e-4, atol=1e-4)
    assert ops.shape(states) == (2, 5, D_MODEL)

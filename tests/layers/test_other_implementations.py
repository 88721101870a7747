"""Other implementations of the Transformer with the same weights have the same outputs, loss and gradients."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.config import TransformerConfig
from t2t_keras.layers import SinusoidalPositions
from t2t_keras.losses import loss_sum_and_count
from t2t_keras.models.transformer import Transformer

D_MODEL, HEADS, D_FF, VOCAB, EPSILON = 16, 2, 24, 13, 1e-5
SOURCE = np.array([[3, 4, 5, 1, 0, 0], [6, 7, 8, 9, 3, 1]], "int32")
TARGET = np.array([[5, 6, 7, 8, 1], [9, 3, 1, 0, 0]], "int32")
every_position_of_the_norm = pytest.mark.parametrize("norm_position", ["post", "pre"])


def randomise_weights(layer, rng):
    """Builds the layer with random weights and returns it."""
    for weight in layer.trainable_variables:
        weight.assign(weight + 0.3 * rng.standard_normal(tuple(weight.shape)).astype("float32"))
    return layer


def to_torch_names(values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Maps arrays, by the paths of this project's variables, to the parameters of an `nn.Transformer`.

    Torch multiplies by transposed kernels, and stores those of queries, keys and values as one parameter.
    """
    torch_arrays = {}
    for stack, attentions in (
        ("encoder", {"self_attention": "self_attn"}),
        ("decoder", {"self_attention": "self_attn", "cross_attention": "multihead_attn"}),
    ):
        sublayers = [*attentions, "feed_forward"]
        for index in range(2):
            our_name, torch_name = f"{stack}/layer_{index}", f"{stack}.layers.{index}"
            for name, other in attentions.items():
                for kind, end in (("kernel", "weight"), ("bias", "bias")):
                    in_proj = [values[f"{our_name}/{name}/{part}_{kind}"].T for part in ("query", "key", "value")]
                    torch_arrays[f"{torch_name}.{other}.in_proj_{end}"] = np.concatenate(in_proj)
                    torch_arrays[f"{torch_name}.{other}.out_proj.{end}"] = values[f"{our_name}/{name}/output_{kind}"].T
            for number, part in enumerate(("inner", "outer"), 1):
                torch_arrays[f"{torch_name}.linear{number}.weight"] = values[f"{our_name}/feed_forward/{part}_kernel"].T
                torch_arrays[f"{torch_name}.linear{number}.bias"] = values[f"{our_name}/feed_forward/{part}_bias"]
            for number, name in enumerate(sublayers, 1):
                torch_arrays[f"{torch_name}.norm{number}.weight"] = values[f"{our_name}/{name}_residual/norm/scale"]
                torch_arrays[f"{torch_name}.norm{number}.bias"] = values[f"{our_name}/{name}_residual/norm/offset"]
        if f"{stack}/final_norm/scale" in values:
            torch_arrays[f"{stack}.norm.weight"] = values[f"{stack}/final_norm/scale"]
            torch_arrays[f"{stack}.norm.bias"] = values[f"{stack}/final_norm/offset"]
    return torch_arrays


def by_path(variables, values) -> dict[str, np.ndarray]:
    """Returns arrays by the paths of variables within their model."""
    return {
        variable.path.partition("/")[2]: np.array(tf.convert_to_tensor(value))
        for variable, value in zip(variables, values, strict=True)
    }


@every_position_of_the_norm
def test_torch_transformer_has_the_same_logits_loss_and_gradients(rng, norm_position):
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
    variables = randomise_weights(model, rng).trainable_variables
    with tf.GradientTape() as tape:
        logits = model({"source": SOURCE, "target": TARGET})
        loss, _ = loss_sum_and_count(TARGET, logits, 0.1)
    gradients = by_path(variables, tape.gradient(loss, [variable.value for variable in variables]))
    weights = by_path(variables, [variable.value for variable in variables])

    torch_model = torch.nn.Transformer(
        D_MODEL, HEADS, 2, 2, D_FF, 0.0, layer_norm_eps=EPSILON, batch_first=True, norm_first=norm_position == "pre"
    )
    if norm_position == "post":  # The paper has no normalisation after the last layer.
        torch_model.encoder.norm = torch_model.decoder.norm = None
    torch_model.load_state_dict({name: torch.tensor(value) for name, value in to_torch_names(weights).items()})
    table = torch.tensor(weights["target_embedding/table"], requires_grad=True)

    def embedded(ids: np.ndarray):
        ids = torch.tensor(ids, dtype=torch.int64)
        positions = torch.tensor(np.array(SinusoidalPositions()(np.zeros((1, ids.shape[1], D_MODEL), "float32"))))
        return table[ids] * D_MODEL**0.5 * (ids != 0)[..., None] + positions

    padding = torch.tensor(SOURCE == 0)
    states = torch_model(
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
    expected = {name: parameter.grad.numpy() for name, parameter in torch_model.named_parameters()}
    actual = to_torch_names(gradients)
    assert actual.keys() == expected.keys()
    for name, gradient in expected.items():
        np.testing.assert_allclose(actual[name], gradient, rtol=1e-3, atol=1e-4, err_msg=name)
    np.testing.assert_allclose(gradients["target_embedding/table"], table.grad.numpy(), rtol=1e-3, atol=1e-4)

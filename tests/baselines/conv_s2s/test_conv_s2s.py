"""ConvS2S: comparison with NumPy, initial weights and gradient scaling."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.baselines.conv_s2s.conv_s2s_config import ConvS2SConfig
from t2t_keras.errors import InputError
from t2t_keras.models import families
from tests.baselines.in_numpy import assert_equals_numpy, sigmoid
from tests.baselines.untrained import SOURCE, VOCAB, untrained
from tests.layers.numpy_oracle import numbers

SIZES = {"d_model": 8, "d_output": None, "max_positions": 30}
SHAPES = {
    "widths": {"d_output": 7, "encoder_layers": "2x6x3, 1x10x1", "decoder_layers": "1x6x3,1x5x1"},
    "tied": {"encoder_layers": "1x8x5", "decoder_layers": "2x8x3", "tie_embeddings": True},
    "few_positions": {"encoder_layers": "1x6x3", "decoder_layers": "1x6x3", "max_positions": 3},
}
TARGET = np.array([[3, 4, 5, 1, 0, 0], [8, 1, 0, 0, 0, 0], [11, 12, 13, 14, 15, 1]], np.int32)
BATCH = {"source": SOURCE, "target": TARGET}


@functools.cache
def make(shape: str = "widths", **changes):
    return untrained(ConvS2SConfig(vocab_size=VOCAB, **{**SIZES, **SHAPES[shape], **changes}))


# ---- Reference in NumPy: one sentence at a time, without padding ----


def convolved_in_numpy(layer, x: np.ndarray) -> np.ndarray:
    """Shapes: [length, d_in] --> [length, filters]."""
    kernel = numbers(layer.kernel)
    kernel = kernel / np.sqrt((kernel**2).sum(axis=(0, 1))) * numbers(layer.scale)
    size = len(kernel)
    before = size - 1 if layer.causal else (size - 1) // 2
    padded = np.pad(x, ((before, size - 1 - before), (0, 0)))
    return np.array([np.einsum("kd,kdf->f", padded[t : t + size], kernel) for t in range(len(x))]) + numbers(layer.bias)


def gated_in_numpy(block, x: np.ndarray) -> np.ndarray:
    values, gates = np.split(convolved_in_numpy(block.convolution, x), 2, axis=1)
    return values * sigmoid(gates)


def residual_in_numpy(block, x: np.ndarray, hidden: np.ndarray) -> np.ndarray:
    residual = x if block.projection is None else convolved_in_numpy(block.projection, x)
    return (hidden + residual) * np.sqrt(0.5)


def embedded_in_numpy(embedding, positions, ids: list[int]) -> np.ndarray:
    places = np.minimum(np.arange(len(ids)), len(numbers(positions.table)) - 1)
    return numbers(embedding.table)[ids] * (np.array(ids) != 0)[:, None] + numbers(positions.table)[places]


def logits_in_numpy(model, source: list[int], target: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Returns logits, [target_len, vocab], and attention, [layers, target_len, source_len]."""
    e = embedded_in_numpy(model.source_embedding, model.source_positions, source)
    x = convolved_in_numpy(model.encoder_inputs, e)
    for block in model.encoder_layers:
        x = residual_in_numpy(block, x, gated_in_numpy(block, x))
    z, m = convolved_in_numpy(model.encoder_outputs, x), len(source)

    g = embedded_in_numpy(model.target_embedding, model.target_positions, [0, *target[:-1]])
    x, attention = convolved_in_numpy(model.decoder_inputs, g), []
    for block in model.decoder_layers:
        h = gated_in_numpy(block, x)
        d = (convolved_in_numpy(block.query, h) + g) * np.sqrt(0.5)
        a = np.exp(d @ z.T - (d @ z.T).max(axis=1, keepdims=True))
        a /= a.sum(axis=1, keepdims=True)
        c = a @ ((z + e) * np.sqrt(0.5)) * m * np.sqrt(1 / m)
        h = (convolved_in_numpy(block.output_linear, c) + h) * np.sqrt(0.5)
        x = residual_in_numpy(block, x, h)
        attention.append(a)
    head = model.output_head
    hidden = convolved_in_numpy(model.decoder_outputs, x)
    return hidden @ numbers(head.table).T + numbers(head.bias), np.array(attention)


@pytest.mark.parametrize("shape", SHAPES)
def test_equals_numpy(shape):
    assert_equals_numpy(make(shape), logits_in_numpy, TARGET)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_configuration_counts_the_weights(shape):
    model = make(shape)
    assert model.count_params() == sum(model.config.parameter_counts().values())
    assert len({weight.path for weight in model.trainable_variables}) == len(model.trainable_variables)
    matrices = [weight for weight in model.trainable_variables if weight.path.endswith("/kernel")]
    matrices = sum(int(np.prod(weight.shape)) for weight in matrices) + VOCAB * model.config.output_width()
    assert model.config.training_flops(20)["matrices"] == 6 * matrices


def test_initial_weights_follow_the_paper():
    """Section 3.5 of the paper; the model is large enough for estimates of the deviation."""
    keras.utils.set_random_seed(3)
    layers = {"encoder_layers": "1x90x3", "decoder_layers": "1x90x3"}
    sizes = {"vocab_size": 400, "d_model": 60, "d_output": 50}
    model = families.make_model(ConvS2SConfig(dropout_rate=0.2, max_positions=100, **sizes, **layers))
    block = model.decoder_layers[0]
    for weight, stddev in (
        (model.source_embedding.table, 0.1),
        (model.target_positions.table, 0.1),
        (model.output_head.table, np.sqrt(0.8 / 50)),
        (model.encoder_inputs.weight(), np.sqrt(0.8 / 60)),
        (block.convolution.weight(), np.sqrt(4 * 0.8 / (3 * 90))),
        (block.query.weight(), np.sqrt(1 / 90)),
        (block.output_linear.weight(), np.sqrt(1 / 60)),
    ):
        assert np.std(weight) == pytest.approx(stddev, rel=0.05)
    assert not np.any(block.convolution.bias) and not np.any(model.output_head.bias)


def test_gradients_of_the_encoder_are_scaled():
    """Gradients through the memory are scaled by 1 / (2 * attentions) (section 3.5)."""
    model = make("tied")
    layers = 2 * len(model.decoder_layers)
    outputs = model.encoder_outputs
    moved = outputs.bias.numpy() + 1e-2 * np.eye(8, dtype="float32")[3]

    def loss() -> tf.Tensor:
        return tf.reduce_sum(tf.sin(model(BATCH)))

    with tf.GradientTape() as tape:
        before = loss()
    bias = outputs.bias.numpy()
    gradient = tape.gradient(before, outputs.bias.value).numpy()
    differences = []
    for sign in (1, -1):
        outputs.bias.assign(bias + sign * (moved - bias))
        differences.append(float(loss()))
    outputs.bias.assign(bias)
    slope = (differences[0] - differences[1]) / 2e-2
    assert gradient[3] == pytest.approx(slope / layers, rel=0.02)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"encoder_layers": "4*256x3"}, r"model\.encoder_layers must list blocks as number x width .* got '4\*256x3'"),
        ({"decoder_layers": "4x256"}, r"model\.decoder_layers must list blocks .*, for example 4x256x3,2x512x1, got"),
        ({"decoder_layers": "0x256x3"}, r"model\.decoder_layers must list blocks"),
        ({"encoder_layers": "4x256x2"}, r"model\.encoder_layers must have odd kernel sizes, got 2"),
        ({"tie_embeddings": True}, r"model\.tie_embeddings needs model\.d_output to be model\.d_model=768, got 512"),
        ({"d_output": 0}, r"model\.d_output must be None or a whole number of at least 1, got 0"),
    ],
)
def test_invalid_settings_are_rejected(settings, complaint):
    with pytest.raises(InputError, match=complaint):
        ConvS2SConfig(**settings)

"""The fused loss and its gradients, compared with TensorFlow's differentiation of the plain formula."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras import losses
from t2t_keras.training import fused_loss as module
from t2t_keras.training.fused_loss import ChunkedLoss, FusedLoss
from t2t_keras.training.updates import Head

D_MODEL = 8
VOCAB = 50


def make_inputs(
    batch: int = 3, target_len: int = 7, scale: float = 1.0, seed: int = 0, *, has_bias: bool = False
) -> tuple[np.ndarray, ...]:
    """Returns states, a matrix, an optional bias, and targets; each row except the first ends in padding."""
    random = np.random.default_rng(seed)
    states = random.normal(size=(batch, target_len, D_MODEL)).astype(np.float32) * scale
    table = random.normal(size=(VOCAB, D_MODEL)).astype(np.float32) * scale
    targets = random.integers(1, VOCAB, (batch, target_len)).astype(np.int32)
    for row in range(batch):
        targets[row, target_len - row % target_len :] = 0
    bias = random.normal(size=VOCAB).astype(np.float32)
    return (states, table, bias, targets) if has_bias else (states, table, targets)


def fused_loss(
    hidden: tf.Tensor, head: Head, targets: tf.Tensor, epsilon: float, *, for_cpu: bool = True, **options
) -> FusedLoss:
    return ChunkedLoss(head, epsilon, hidden.dtype, for_cpu)(hidden, targets, **{"scale": 1.0, **options})


def plain(epsilon: float, *inputs: np.ndarray) -> list[np.ndarray]:
    """Returns the loss by the formula, and its gradients with respect to the states and the head, times 3 as in an
    outer formula.
    """
    states, *head, targets = map(tf.constant, inputs)
    with tf.GradientTape() as tape:
        tape.watch([states, *head])
        logits = tf.matmul(tf.cast(states, tf.float32), head[0], transpose_b=True)
        logits = tf.add_n([logits, *(bias + 0 * logits for bias in head[1:])])
        real = tf.cast(targets != 0, tf.float32)
        loss = tf.reduce_sum(losses.token_losses(targets, logits, epsilon) * real)
        tripled = 3.0 * loss
    return [tensor.numpy() for tensor in (loss, *tape.gradient(tripled, [states, *head]))]


@functools.cache
def traced(
    epsilon: float, skip_padding: bool, chunk_elements: int, hidden: tf.DType, has_bias: bool, compiled: bool
) -> tf.types.experimental.PolymorphicFunction:
    """Returns a function of states, head and targets; with skipped padding, one graph serves all shapes."""
    assert chunk_elements == module._CPU_CHUNK_ELEMENTS

    def computed(states: tf.Tensor, *head_and_targets: tf.Tensor) -> list[tf.Tensor]:
        *head, targets = head_and_targets
        result = fused_loss(states, Head(*head), targets, epsilon, scale=3.0, skip_padding=skip_padding)
        return [result.loss_sum, result.d_hidden, *result.d_head[: len(head)]]

    head = [tf.TensorSpec([VOCAB, D_MODEL]), tf.TensorSpec([VOCAB])][: 1 + has_bias]
    signature = [tf.TensorSpec([None, None, D_MODEL], hidden), *head, tf.TensorSpec([None, None], tf.int32)]
    return tf.function(computed, signature if skip_padding else None, autograph=False, jit_compile=compiled or None)


def fused(epsilon: float, skip_padding: bool, *inputs: np.ndarray, jit_compile: bool = False) -> list[np.ndarray]:
    """Returns the same for the fused loss."""
    states, *head_and_targets = map(tf.constant, inputs)
    chunk_elements, has_bias = module._CPU_CHUNK_ELEMENTS, len(head_and_targets) == 3
    computed = traced(epsilon, skip_padding, chunk_elements, states.dtype, has_bias, jit_compile)
    return [tf.cast(tensor, tf.float32).numpy() for tensor in computed(states, *head_and_targets)]


def assert_close(actual: list[np.ndarray], expected: list[np.ndarray], tolerance: float = 1e-5) -> None:
    """Asserts that each array is within `tolerance` of the largest expected element."""
    for array, expected_array in zip(actual, expected, strict=True):
        assert array.shape == expected_array.shape
        assert np.isfinite(array).all()
        np.testing.assert_allclose(
            array, expected_array, rtol=tolerance, atol=tolerance * max(np.abs(expected_array).max(), 1e-3)
        )


@pytest.mark.parametrize("skip_padding", [True, False])
@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_equals_plain_formula(epsilon, skip_padding):
    inputs = make_inputs()
    expected = plain(epsilon, *inputs)
    assert_close(fused(epsilon, skip_padding, *inputs), expected)
    # Compares with the value itself, not only with the other program: -log softmax of one row.
    states, table, targets = (array[:1, :1] if array.ndim > 1 and array.shape[0] == 3 else array for array in inputs)
    logits = states[0, 0].astype(np.float64) @ table.T.astype(np.float64)
    log_probs = logits - np.log(np.exp(logits).sum())
    by_hand = -(1 - epsilon) * log_probs[targets[0, 0]] - epsilon * log_probs.mean()
    loss = float(fused_loss(states, Head(table), targets, epsilon, skip_padding=skip_padding).loss_sum)
    assert loss == pytest.approx(by_hand, rel=1e-5)


@pytest.mark.parametrize("skip_padding", [True, False])
def test_a_bias_of_the_head(skip_padding):
    inputs = make_inputs(has_bias=True)
    without = plain(0.1, inputs[0], inputs[1], inputs[3])
    expected = plain(0.1, *inputs)
    assert abs(expected[0] - without[0]) > 0.1 and expected[-1].shape == (VOCAB,)
    assert_close(fused(0.1, skip_padding, *inputs), expected)


@pytest.mark.parametrize("shape", [(3, 1), (3, 7)])
@pytest.mark.parametrize("skip_padding", [True, False])
def test_each_target_can_have_a_different_scale(skip_padding, shape):
    """Scales can be negative; the loss itself is not scaled."""
    states, table, bias, targets = map(tf.constant, make_inputs(has_bias=True))
    scales = tf.constant(np.random.default_rng(1).normal(size=shape).astype(np.float32))
    with tf.GradientTape() as tape:
        tape.watch([states, table, bias])
        logits = tf.matmul(states, table, transpose_b=True) + bias
        token_losses = losses.token_losses(targets, logits, 0.1) * tf.cast(targets != 0, tf.float32)
        scaled = tf.reduce_sum(scales * token_losses)
    expected = [tf.reduce_sum(token_losses), *tape.gradient(scaled, [states, table, bias])]
    result = fused_loss(states, Head(table, bias), targets, 0.1, scale=scales, skip_padding=skip_padding)
    assert_close(
        [tensor.numpy() for tensor in (result.loss_sum, result.d_hidden, *result.d_head)],
        [tensor.numpy() for tensor in expected],
    )


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("skip_padding", [True, False])
@pytest.mark.parametrize("rows", [63, 64, 65, 128, 200])
def test_chunks_add_up(monkeypatch, rows, skip_padding, has_bias):
    monkeypatch.setattr(module, "_CPU_CHUNK_ELEMENTS", 1)  # the smallest chunk size
    inputs = make_inputs(batch=rows, target_len=1, seed=rows, has_bias=has_bias)
    inputs[-1][rows // 2 : rows // 2 + 20] = 0  # padding inside, at the edge of a chunk
    assert_close(fused(0.1, skip_padding, *inputs), plain(0.1, *inputs))


@pytest.mark.parametrize("skip_padding", [True, False])
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_on_an_accelerator_chunks_are_larger_and_nothing_branches(monkeypatch, skip_padding, scale):
    monkeypatch.setattr(module, "_ACCELERATOR_CHUNK_ELEMENTS", 2 * 64 * VOCAB)
    inputs = make_inputs(batch=30, target_len=10, scale=scale)

    @tf.function(autograph=False)
    def run(states, table, targets):
        return fused_loss(states, Head(table), targets, 0.1, scale=3.0, skip_padding=skip_padding, for_cpu=False)

    loss, d_states, d_head = run(*inputs)
    assert_close([np.array(tensor) for tensor in (loss, d_states, d_head.table)], plain(0.1, *inputs))
    definition = run.get_concrete_function(*inputs).graph.as_graph_def()
    nodes = [*definition.node, *(node for function in definition.library.function for node in function.node_def)]
    assert not {node.op for node in nodes} & {"If", "StatelessIf"}


@pytest.mark.parametrize("skip_padding", [True, False])
def test_the_loss_of_padding_is_zero(skip_padding):
    states, table, targets = make_inputs()
    loss, d_states, d_table = fused(0.1, skip_padding, states, table, np.zeros_like(targets))
    assert loss == 0
    assert d_states.shape == states.shape and not d_states.any()
    assert d_table.shape == table.shape and not d_table.any()


@pytest.mark.parametrize("skip_padding", [True, False])
def test_padding_has_no_weight(skip_padding):
    states, table, targets = make_inputs()
    changed = np.where(targets[..., None] == 0, 100.0, states).astype(np.float32)
    before = fused(0.1, skip_padding, states, table, targets)
    after = fused(0.1, skip_padding, changed, table, targets)
    assert not before[1][targets == 0].any()
    assert_close(after, before, 1e-6)


@pytest.mark.quick("0.1-True", "0.0-False")
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_compiled(monkeypatch, epsilon, has_bias):
    monkeypatch.setattr(module, "_CPU_CHUNK_ELEMENTS", 1)
    inputs = make_inputs(batch=15, target_len=10, has_bias=has_bias)
    compiled = fused(epsilon, False, *inputs, jit_compile=True)
    assert_close(compiled, plain(epsilon, *inputs))


@pytest.mark.parametrize("skip_padding", [True, False])
def test_one_graph_for_all_shapes(skip_padding):
    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None, D_MODEL]),
            tf.TensorSpec([VOCAB, D_MODEL]),
            tf.TensorSpec([None, None], tf.int32),
        ],
        autograph=False,
    )
    def run(states, table, targets):
        return fused_loss(states, Head(table), targets, 0.1, skip_padding=skip_padding)

    for batch, target_len in ((1, 1), (4, 9), (9, 20)):
        inputs = make_inputs(batch, target_len)
        assert float(run(*inputs).loss_sum) == pytest.approx(float(plain(0.1, *inputs)[0]), rel=1e-5)


@pytest.mark.parametrize("skip_padding", [True, False])
def test_bfloat16_states(skip_padding):
    states, table, targets = make_inputs(batch=10, target_len=20)
    rounded = tf.cast(states, tf.bfloat16)
    expected = plain(0.1, tf.cast(rounded, tf.float32), table, targets)
    actual = fused(0.1, skip_padding, rounded, table, targets)
    assert_close(actual, expected, 3e-2)
    result = fused_loss(rounded, Head(tf.Variable(table)), targets, 0.1, skip_padding=skip_padding)
    dtypes = (result.loss_sum.dtype, result.d_hidden.dtype, result.d_head.table.dtype)
    assert dtypes == (
        tf.float32,
        tf.bfloat16,
        tf.float32,
    )

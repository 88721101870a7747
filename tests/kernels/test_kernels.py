"""The TensorFlow kernels against their plain versions: values, gradients, and shapes that tracing does not know."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras import kernels
from t2t_keras.kernels import plain
from t2t_keras.kernels import tensorflow as fast

TYPES = [tf.float32, tf.bfloat16]


def values_and_gradients(function, *arguments):
    """Returns the result, and the gradients of a weighted sum of its elements."""
    with tf.GradientTape() as tape:
        tape.watch(arguments)
        outputs = function(*arguments)
        weighted = tf.cast(outputs, tf.float32) * tf.reshape(
            tf.cos(tf.range(tf.size(outputs), dtype=tf.float32)), tf.shape(outputs)
        )
        loss = tf.reduce_sum(weighted)
    gradients = tape.gradient(loss, arguments)
    return [tf.convert_to_tensor(x) for x in (outputs, *gradients)]


def assert_same(fast_results, plain_results, tolerance: float) -> None:
    for fast_result, plain_result in zip(fast_results, plain_results, strict=True):
        assert fast_result.dtype == plain_result.dtype
        assert fast_result.shape == plain_result.shape
        scale = np.abs(tf.cast(plain_result, tf.float32)).max(initial=0.0)
        np.testing.assert_allclose(
            tf.cast(fast_result, tf.float32), tf.cast(plain_result, tf.float32), atol=tolerance * scale, rtol=tolerance
        )


def tolerance(dtype) -> float:
    """Returns a few units in the last place, for 24 or 8 bits."""
    return 2e-5 if dtype == tf.float32 else 2e-2


def test_tensorflow_uses_its_own_kernels():
    for name in plain.__all__:
        assert getattr(kernels, name) is getattr(fast, name)
        assert callable(getattr(plain, name))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(5,), (1, 5), (4, 5), (3, 4, 5)])
@pytest.mark.parametrize("use_bias", [True, False])
def test_linear(rng, dtype, shape, use_bias):
    x = tf.cast(rng.standard_normal((2, *shape)), dtype)
    kernel = tf.constant(rng.standard_normal((5, 7)), tf.float32)
    bias = tf.constant(rng.standard_normal(7), tf.float32)
    if use_bias:
        pair = [values_and_gradients(module.linear, x, kernel, bias) for module in (fast, plain)]
    else:
        pair = [
            values_and_gradients(lambda x, k, m=module: m.linear(x, k, None), x, kernel) for module in (fast, plain)
        ]
    assert_same(*pair, tolerance(dtype))


@pytest.mark.parametrize(("beam", "product"), [(1, "BatchMatMulV3"), (4, "BatchMatMulV3"), (None, "MatMul")])
def test_linear_avoids_onednn_in_a_step(beam, product):
    """oneDNN's fixed cost per product makes the search for one sentence about 10% slower."""
    trace = tf.function(fast.linear).get_concrete_function
    graph = trace(tf.TensorSpec([None, beam, 5]), tf.TensorSpec([5, 7]), tf.TensorSpec([7])).graph
    assert [op.type for op in graph.get_operations() if "MatMul" in op.type] == [product]


@pytest.mark.parametrize("module", [fast, plain])
def test_linear_rounds_to_a_bfloat16_kernel(rng, module):
    """Rounds the inputs and the product to bfloat16; the output has the dtype of the inputs."""
    x = tf.constant(rng.standard_normal((2, 3, 64)), tf.float32)
    kernel, bias = tf.constant(rng.standard_normal((64, 7)), tf.bfloat16), tf.constant([1e-4] * 7)
    outputs = module.linear(x, kernel, bias)
    assert outputs.dtype == tf.float32
    product = np.array(outputs) - 1e-4
    np.testing.assert_allclose(product, tf.cast(tf.cast(product, tf.bfloat16), tf.float32), atol=1e-6)
    exact = tf.cast(x, tf.bfloat16).numpy().astype("float64") @ kernel.numpy().astype("float64")
    np.testing.assert_allclose(product, exact, rtol=2**-7, atol=0.02)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(6, 16), (2, 3, 16), (2, 2, 3, 16)])
def test_layer_normalization(rng, dtype, shape):
    """Compares the explicit gradient with automatic differentiation of the plain formula."""
    x = tf.cast(2.0 + 3.0 * rng.standard_normal(shape), dtype)
    scale, offset = (tf.constant(rng.standard_normal(16), tf.float32) for _ in range(2))
    pair = [
        values_and_gradients(lambda *arguments, m=module: m.layer_normalization(*arguments, 1e-3), x, scale, offset)
        for module in (fast, plain)
    ]
    assert_same(*pair, tolerance(dtype))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("rows", [[0, 2, 5], [4], [], [0, 1, 2, 3, 4, 5]])
def test_take_and_put_rows(rng, dtype, rows):
    x = tf.cast(rng.standard_normal((2, 3, 5)), dtype)
    values = tf.cast(rng.standard_normal((len(rows), 5)), dtype)
    indices, like = tf.constant(rows, tf.int32), tf.zeros((2, 3, 5))
    for inputs, call in (
        (x, lambda x, m: m.take_rows(x, indices)),
        (values, lambda v, m: m.put_rows(v, indices, like)),
    ):
        fast_results, plain_results = (
            values_and_gradients(lambda x, call=call, m=m: call(x, m), inputs) for m in (fast, plain)
        )
        assert_same(fast_results, plain_results, 0.0)
    taken = fast.take_rows(x, indices)
    assert taken.shape == (len(rows), 5)
    put = np.array(tf.cast(fast.put_rows(taken, indices, like), tf.float32)).reshape(6, 5)
    is_taken = np.isin(np.arange(6), rows)[:, None]
    np.testing.assert_array_equal(put, np.where(is_taken, np.array(tf.cast(x, tf.float32)).reshape(6, 5), 0))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(3, 7), (2, 3, 1), (2, 2, 3, 5)])
@pytest.mark.filterwarnings("ignore:You are using a softmax over axis -1")
def test_softmax(rng, dtype, shape):
    x = tf.cast(3.0 * rng.standard_normal(shape), dtype)
    pair = [values_and_gradients(module.softmax, x) for module in (fast, plain)]
    assert_same(*pair, tolerance(dtype))


def test_layer_normalization_of_equal_elements_has_finite_gradients():
    results = values_and_gradients(
        lambda x: fast.layer_normalization(x, tf.ones(8), tf.zeros(8), 1e-6), tf.fill((3, 8), 5.0)
    )
    assert all(np.all(np.isfinite(result)) for result in results)


@pytest.mark.parametrize("shape", [(4,), (3, 4)])
def test_embedding_lookup(rng, shape):
    """The gradients of repeated ids are summed."""
    table = tf.constant(rng.standard_normal((6, 5)), tf.float32)
    token_ids = tf.constant(rng.integers(0, 3, shape), tf.int32)
    pair = [
        values_and_gradients(lambda t, m=module: m.embedding_lookup(t, token_ids), table) for module in (fast, plain)
    ]
    assert_same(*pair, 1e-6)


@pytest.mark.parametrize("module", [fast, plain])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("rate", [0.1, 0.3, 0.013, 0.5])
def test_dropout_has_the_same_statistics(module, dtype, rate):
    x = tf.ones((300, 333), dtype)
    outputs, gradient = values_and_gradients(lambda x: module.dropout(x, rate, tf.constant([3, 4])), x)
    assert outputs.dtype == dtype
    outputs = np.array(tf.cast(outputs, tf.float32))
    noise = 4 * (rate * (1 - rate) / outputs.size) ** 0.5
    assert abs(np.mean(outputs == 0) - rate) < noise + 0.005
    # bfloat16 rounds the factor 1 / (1 - rate) to 8 bits.
    assert abs(outputs.mean() - 1.0) < noise / (1 - rate) + (2.0**-8 if dtype == tf.bfloat16 else 0.0)
    np.testing.assert_array_equal(np.array(tf.cast(gradient, tf.float32)) == 0, outputs == 0)


def test_kernels_run_in_a_graph_with_unknown_shapes(rng):
    kernel, scale = tf.constant(rng.standard_normal((5, 5)), tf.float32), tf.ones(5)

    @tf.function(input_signature=[tf.TensorSpec([None, None, 5])])
    def traced(x):
        y = fast.layer_normalization(fast.linear(x, kernel, scale), scale, scale, 1e-6)
        assert y.shape.as_list() == [None, None, 5]
        return y

    x = tf.constant(rng.standard_normal((2, 3, 5)), tf.float32)
    expected = plain.layer_normalization(plain.linear(x, kernel, scale), scale, scale, 1e-6)
    np.testing.assert_allclose(traced(x), expected, atol=1e-5)


@pytest.mark.parametrize("dtype", TYPES)
def test_scan(rng, dtype):
    """Also compiles it with XLA, which differentiates only loops with a bounded number of iterations."""
    # --> [batch, length, d_in], [batch, width], [width, width]
    inputs, start, kernel = (tf.cast(rng.standard_normal(shape), dtype) for shape in ((3, 6, 4), (3, 4), (4, 4)))

    def scan_gradients(module, **options):
        def run(inputs, start, kernel):
            return module.scan(lambda state, x: tf.tanh(tf.matmul(state, kernel) + x), start, inputs)

        run_with_gradients = tf.function(lambda *arguments: values_and_gradients(run, *arguments), **options)
        return run_with_gradients(inputs, start, kernel)

    expected = scan_gradients(plain)
    assert expected[0].shape == (3, 6, 4)
    assert_same(scan_gradients(fast), expected, 5 * tolerance(dtype))
    assert_same(scan_gradients(fast, jit_compile=True), expected, 5 * tolerance(dtype))


@pytest.mark.parametrize("dtype", TYPES)
def test_recurrent_scan(rng, dtype):
    """Compares with a scan whose step contains the product: traced, eager and compiled."""
    shapes = ((3, 6, 4), (3, 4), (5, 4), (4, 5))
    arguments = [tf.cast(rng.standard_normal(shape), dtype) for shape in shapes]

    def scan_gradients(module):
        def run(inputs, start, kernel, reading):
            return module.recurrent_scan(
                lambda state: tf.tanh(tf.matmul(state, reading)),
                lambda state, rows, x: tf.tanh(x) + 0.1 * tf.reduce_sum(rows, -1, keepdims=True) - 0.1 * state,
                start,
                inputs,
                kernel,
                lambda states: tf.tanh(tf.matmul(tf.concat([start[:, tf.newaxis], states[:, :-1]], 1), reading)),
            )

        return lambda *arguments: values_and_gradients(run, *arguments)

    expected = tf.function(scan_gradients(plain))(*arguments)
    assert all(float(tf.reduce_max(tf.abs(gradient))) > 0.1 for gradient in expected[1:])
    for run in (
        scan_gradients(fast),
        tf.function(scan_gradients(fast)),
        tf.function(scan_gradients(fast), jit_compile=True),
    ):
        assert_same(run(*arguments), expected, 5 * tolerance(dtype))


@pytest.mark.quick("dtype0-False-one_kernel", "dtype0-True-two_factors")
@pytest.mark.parametrize("widths", [(4, 16), (4, 3, 16)], ids=["one_kernel", "two_factors"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", TYPES)
def test_lstm(rng, dtype, reverse, widths):
    batch, length, units = 3, 6, 4
    mask = np.arange(length) < np.array([[6], [2], [4]])
    inputs = tf.cast(rng.standard_normal((batch, length, 4 * units)), dtype)
    factors = [tf.constant(rng.standard_normal(shape), tf.float32) for shape in itertools.pairwise(widths)]

    def make_lstm(module):
        return lambda inputs, *factors: module.lstm(inputs, factors, tf.constant(mask), reverse=reverse)

    pair = [values_and_gradients(tf.function(make_lstm(module)), inputs, *factors) for module in (fast, plain)]
    assert_same(*pair, 5 * tolerance(dtype))
    assert all(float(tf.reduce_max(tf.abs(gradient))) > 0.01 for gradient in pair[0][1:])


OPEN_GATES = [30.0, 0.0, 30.0, 30.0]  # input, forget, candidate, output: the cell becomes 1


def test_a_closed_forget_gate_keeps_only_the_new_value():
    """In bfloat16, the difference to the old value would be rounded."""
    gates = tf.constant([[OPEN_GATES, [30.0, -30.0, 0.01, 30.0]]], tf.bfloat16)
    hidden = fast.lstm(gates, [tf.zeros([1, 4])], tf.constant([[True, True]]))  # --> [1, 2, 1]
    assert float(hidden[0, 1, 0]) == pytest.approx(0.01, rel=4e-3)


@pytest.mark.parametrize(("dtype", "is_accelerated"), [(tf.float32, False), (tf.bfloat16, True)])
@pytest.mark.parametrize(
    ("kernel_size", "dilation_rate", "before"), [(1, 1, 0), (3, 1, 2), (3, 1, 1), (2, 3, 3), (3, 4, 4), (5, 1, 0)]
)
def test_convolution(rng, monkeypatch, dtype, kernel_size, dilation_rate, before, is_accelerated):
    """Covers kernels that extend beyond both ends of a short sequence, and the variant for GPUs."""
    monkeypatch.setattr(fast, "_is_accelerated", lambda: is_accelerated)
    kernel, bias = (tf.constant(rng.standard_normal(shape), tf.float32) for shape in ((kernel_size, 5, 7), (7,)))
    signature = [tf.TensorSpec(shape, kind) for shape, kind in (((None, None, 5), dtype), ((7,), tf.float32))]
    signature.insert(1, tf.TensorSpec(kernel.shape, tf.float32))

    def results(module, x):
        run = tf.function(lambda *parts: module.convolution(*parts, dilation_rate, before), input_signature=signature)
        assert run.get_concrete_function().output_shapes.as_list() == [None, None, 7]
        return values_and_gradients(run, x, kernel, bias)

    for length in (1, 3, 9):
        x = tf.cast(rng.standard_normal((2, length, 5)), dtype)
        assert_same(results(fast, x), results(plain, x), 5 * tolerance(dtype))
    without_bias = [module.convolution(x, kernel, None, dilation_rate, before) for module in (fast, plain)]
    assert_same(without_bias[:1], without_bias[1:], tolerance(dtype))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("counts", [[3, 0, 7, 2], [0, 0, 12, 0], [1, 0, 0, 0], [0, 0, 0, 0], [9, 9, 9, 9]])
def test_grouped_linear(rng, dtype, counts):
    """Multiplies each row by the kernel of its group; groups can be empty."""
    rows = sum(counts)
    inputs = tf.cast(rng.standard_normal((rows, 5)), dtype)
    weights = [tf.constant(rng.standard_normal(shape), tf.float32) for shape in ((4, 5, 3), (4, 3))]
    pair = [
        values_and_gradients(lambda *arguments, m=module: m.grouped_linear(*arguments, tf.constant(counts)), *pairs)
        for module, pairs in ((fast, (inputs, *weights)), (plain, (inputs, *weights)))
    ]
    assert_same(*pair, tolerance(dtype))
    kernels_of_rows, biases_of_rows = (np.repeat(weight, counts, axis=0) for weight in weights)
    expected = np.einsum("ri,rio->ro", tf.cast(inputs, tf.float32), kernels_of_rows) + biases_of_rows
    np.testing.assert_allclose(tf.cast(pair[0][0], tf.float32), expected, atol=tolerance(dtype) * 20)


def test_plain_grouped_linear_compiles_once_for_all_counts(rng):
    """Its shapes are static, so that one program serves all counts."""
    kernel, bias = (tf.constant(rng.standard_normal(shape), tf.float32) for shape in ((4, 5, 3), (4, 3)))
    compiled = tf.function(lambda x, counts: plain.grouped_linear(x, kernel, bias, counts), jit_compile=True)
    inputs = tf.constant(rng.standard_normal((12, 5)), tf.float32)
    for counts in ([3, 0, 7, 2], [12, 0, 0, 0], [0, 0, 0, 12]):
        actual = compiled(inputs, tf.constant(counts))
        np.testing.assert_allclose(actual, fast.grouped_linear(inputs, kernel, bias, tf.constant(counts)), atol=1e-5)
    assert compiled.experimental_get_tracing_count() == 1


@pytest.mark.parametrize("module", [fast, plain])
def test_normal_numbers_have_a_normal_distribution_and_depend_on_the_seed(module):
    first, repeated, other_seed = (
        np.array(module.normal((400, 250), tf.constant(seed))) for seed in ([3, 4], [3, 4], [3, 5])
    )
    np.testing.assert_array_equal(first, repeated)
    noise = 4 / first.size**0.5
    for moment, expected in ((1, 0.0), (2, 1.0), (3, 0.0), (4, 3.0)):
        assert np.mean(first**moment) == pytest.approx(expected, abs=10 * noise)
    assert abs(np.mean(first * other_seed)) < noise
    assert abs(np.mean(first[1:] * first[:-1])) < noise
    assert first.dtype == np.float32 and np.isfinite(first).all()


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("length", [1, 4, 40])
def test_split_and_merge_heads(rng, length, heads):
    x = tf.constant(rng.standard_normal((2, length, 5 * heads)), tf.float32)
    for static_shape in (True, False):
        spec = [tf.TensorSpec(x.shape if static_shape else [None, None, 5 * heads])]
        split = [tf.function(lambda x, m=m: m.split_heads(x, heads), input_signature=spec)(x) for m in (fast, plain)]
        np.testing.assert_array_equal(*split)
        np.testing.assert_array_equal(split[0], np.array(x).reshape(2, length, heads, 5).swapaxes(1, 2))
        spec = [tf.TensorSpec(split[0].shape if static_shape else [None, heads, None, 5])]
        for module in (fast, plain):
            np.testing.assert_array_equal(tf.function(module.merge_heads, input_signature=spec)(split[0]), x)

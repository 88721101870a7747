"""The limits of a call, which the server checks before it computes anything."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.export.limits import MAX_ELEMENTS
from t2t_keras.export_contract import MAX_LINE_TOKENS
from t2t_keras.serving.options import Limits
from t2t_keras.serving.request_errors import Code, ServingError, serving_error
from t2t_keras.serving.served_signatures import Signature, check_size

TEXT = {"text": tf.TensorSpec([None], tf.string)}
ALIGN = {
    "translation": tf.TensorSpec([None], tf.string),
    "source_pieces": tf.TensorSpec([None, None], tf.string),
    "attention": tf.TensorSpec([None, None, None], tf.float32),
}
IDS = {"source_ids": tf.TensorSpec([None, None], tf.int32), "source_length": tf.TensorSpec([None], tf.int32)}


def signature(inputs, outputs):
    return Signature("align", inputs, outputs, lambda: pytest.fail("the signature must not run"))


def texts(*lengths):
    array = np.empty(len(lengths), object)
    array[:] = [b"x" * length for length in lengths]
    return {"text": array}


def error_of(*arguments):
    with pytest.raises(ServingError) as caught:
        signature(*arguments[:2]).check(*arguments[2:])
    assert caught.value.code is Code.INVALID_ARGUMENT
    return caught.value.message


def test_padding_counts_towards_the_limit():
    """A few kilobytes request [256, 1500, 1500] elements."""
    message = error_of(TEXT, ALIGN, texts(*[1] * 255, 3000), Limits())
    assert "576384256 elements" in message and "256 sentences" in message and "max_output_elements=8388608" in message


@pytest.mark.parametrize("lengths", [[4096], [250] * 256, [1] * 256])
def test_realistic_texts_are_accepted(lengths):
    assert signature(TEXT, ALIGN).check(texts(*lengths), Limits()) == len(lengths)


def test_outputs_of_fixed_size_are_bounded_by_the_number_of_sentences():
    outputs = {"translations": tf.TensorSpec([None, 4], tf.string), "score": tf.TensorSpec([None], tf.float32)}
    assert signature(TEXT, outputs).check(texts(*[4096] * 10), Limits(max_output_elements=50)) == 10
    assert "50 elements" in error_of(TEXT, outputs, texts(*[1] * 10), Limits(max_output_elements=49))


def test_rows_of_numbers_are_bounded():
    outputs = {"translation_ids": tf.TensorSpec([None, None], tf.int32)}

    def ids(rows, length):
        return {"source_ids": np.ones([rows, length], np.int32), "source_length": np.ones([rows], np.int32)}

    assert signature(IDS, outputs).check(ids(2, 1024), Limits()) == 2
    assert "30000 numbers: the limit is max_input_length=1024" in error_of(IDS, outputs, ids(1, 30_000), Limits())
    # The model determines the length of rows of fixed size.
    fixed = {"image": tf.TensorSpec([None, 50, 50], tf.float32)}
    image = {"image": np.zeros([1, 50, 50], np.float32)}
    assert signature(fixed, outputs).check(image, Limits()) == 1


def test_two_rows_and_one_length_are_not_a_batch():
    inputs = {"source_ids": np.ones([2, 3], np.int32), "source_length": np.ones([1], np.int32)}
    message = error_of(IDS, {"translation_ids": tf.TensorSpec([None, None], tf.int32)}, inputs, Limits())
    assert "'source_ids' has 2" in message and "'source_length' has 1" in message


def test_cost_of_a_row():
    inputs = {**TEXT, "seed": tf.TensorSpec([None], tf.int64), "names": tf.TensorSpec([None, 2], tf.string)}
    names = np.array([[b"a", b"bc"], [b"", b""]], object)
    call = {**texts(5, 0), "seed": np.zeros([2], np.int64), "names": names}
    assert signature(inputs, {}).costs(call, 2).tolist() == [40, 32]
    ids = {"source_ids": np.ones([3, 10], np.int32), "source_length": np.ones([3], np.int32)}
    assert signature(IDS, {}).costs(ids, 3).tolist() == [72] * 3
    assert signature({"one": tf.TensorSpec([], tf.string)}, {}).costs(
        {"one": np.array(b"abc", object)}, 1
    ).tolist() == [32]


def test_limits_of_server_and_export_agree():
    limits = Limits()
    assert (limits.max_input_length, limits.max_output_elements) == (MAX_LINE_TOKENS, MAX_ELEMENTS)


def test_size_of_outputs_is_checked():
    outputs = {"a": np.zeros([3, 5]), "b": np.zeros([])}
    check_size(outputs, Limits(max_output_elements=16))
    with pytest.raises(ServingError, match="16 elements.*max_output_elements=15"):
        check_size(outputs, Limits(max_output_elements=15))


@pytest.mark.parametrize("shape", [None, [], [None], [3], [None, None], [None, 2], [2, 0]])
def test_shape_checks_agree_with_tensorflow(shape):
    spec = tf.TensorSpec(shape, tf.int32)
    signature = Signature("shaped", {"x": spec}, {"y": tf.TensorSpec([None], tf.int32)}, lambda x: {"y": x})
    sizes = [(), (1,), (3,), (3, 2), (2, 1), (2, 0), (1, 2, 3)]
    for array in (np.ones(each, np.int32) for each in sizes):
        try:
            signature.check({"x": array}, Limits())
            fits = True
        except ServingError as error:
            fits = "must have the shape" not in str(error)
        assert fits == spec.shape.is_compatible_with(array.shape), array.shape


def test_outputs_are_arrays():
    run = Signature("s", {}, {}, lambda: {"one": tf.constant("a"), "row": tf.constant(["b"]), "n": tf.constant(2)}).run
    outputs = run({})
    assert {name: (array.dtype.kind, array.shape) for name, array in outputs.items()} == {
        **{"one": ("O", ()), "row": ("O", (1,)), "n": ("i", ())}
    }
    assert outputs["one"][()] == b"a"


def test_quotes_in_messages_of_assertions():
    message = 'assertion failed: [\\"source_length\\" is 9, but the row has 2 tokens]\n\t [[{{node Assert}}]]'
    error = serving_error(tf.errors.InvalidArgumentError(None, None, message))
    assert error.code is Code.INVALID_ARGUMENT
    assert error.message == 'assertion failed: ["source_length" is 9, but the row has 2 tokens]'

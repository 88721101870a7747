"""JSON and arrays: every body gives arrays or an error, and arrays survive a round trip."""

import json

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from t2t_keras.serving.http import json_tensors
from t2t_keras.serving.http.json_tensors import parse_body, read_inputs, write_outputs
from t2t_keras.serving.options import Limits
from t2t_keras.serving.request_errors import Code, ServingError
from t2t_keras.serving.served_signatures import Signature

SPECS = {
    "text": tf.TensorSpec([None], tf.string),
    "table": tf.TensorSpec([None, None], tf.int32),
    "number": tf.TensorSpec([None], tf.float32),
    "flag": tf.TensorSpec([None, 2], tf.bool),
    "one": tf.TensorSpec([], tf.int64),
}
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.builds(lambda text: {"b64": text}, st.text())
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*SPECS, "b64", "other"]), inner),
    max_leaves=8,
)


def write(outputs, by_row):
    return b"".join(write_outputs(outputs, by_row))


def signature(*names):
    return Signature("test", {name: SPECS[name] for name in names}, {}, lambda: {})


@settings(max_examples=300, deadline=None)
@given(st.sets(st.sampled_from(sorted(SPECS)), min_size=1), st.sampled_from(["instances", "inputs"]), VALUES)
def test_any_json_gives_valid_arrays_or_an_error(names, form, value):
    tested_signature = signature(*names)
    try:
        arrays = read_inputs(parse_body(json.dumps({form: value}).encode()), tested_signature)
        tested_signature.check(arrays, Limits())
    except ServingError as error:
        assert error.code is Code.INVALID_ARGUMENT and error.message
        return
    for name, spec in tested_signature.inputs.items():
        assert tf.constant(arrays[name], spec.dtype).shape.is_compatible_with(spec.shape)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_give_an_object_or_an_error(body):
    try:
        call = parse_body(body)
    except ServingError as error:
        assert error.code is Code.INVALID_ARGUMENT
        return
    assert isinstance(call, dict)


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(["<f4", "<f8", "<i4", "<i8", "?"]).flatmap(
        lambda dtype: st_numpy.arrays(dtype, st_numpy.array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=4))
    )
)
def test_arrays_survive_a_round_trip(array):
    response = json.loads(write({"value": array}, by_row=False))["outputs"]
    array_read = np.array(response, array.dtype).reshape(array.shape)
    assert np.array_equal(array_read, array, equal_nan=array.dtype.kind == "f")


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=8) | st.text(max_size=8).map(str.encode)))
def test_strings_survive_a_round_trip(texts):
    array = np.empty(len(texts), object)
    array[:] = texts
    for name in ("value", "value_bytes"):
        body = write({name: array}, by_row=False).replace(b'"outputs"', b'"inputs"')
        assert read_inputs(parse_body(body), signature("text"))["text"].tolist() == texts


def test_floats_are_written_with_the_fewest_digits():
    array = np.array([0.1, 1 / 3, np.inf, -np.finfo(np.float32).max], np.float32)
    assert write({"score": array}, by_row=True) == b'{"predictions":[0.1,0.33333334,Infinity,-3.4028235e+38]}'


@pytest.mark.parametrize("array", [np.int32(7), np.zeros([], np.float32), np.array(b"a", object)])
def test_scalars_have_no_rows(array):
    assert json.loads(write({"value": np.asarray(array)}, by_row=False))["outputs"] in (7, 0, "a")
    with pytest.raises(ServingError, match="no common rows"):
        write({"value": np.asarray(array)}, by_row=True)


@pytest.mark.parametrize("by_row", [False, True])
@pytest.mark.parametrize("shape", [(10_000,), (3, 5_000), (5_000, 3), (2, 70, 70), (1, 2, 4_097), (0, 9_000)])
def test_large_arrays_are_written_in_pieces(shape, by_row):
    numbers = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    strings = np.array([str(number).encode() for number in range(numbers.size)], object).reshape(shape)
    outputs = {"number": numbers, "string": strings, "one": np.arange(shape[0])}
    response = json.loads(write(outputs, by_row))
    if by_row:
        rows = response["predictions"]
        assert len(rows) == shape[0]
        outputs_read = {name: [row[name] for row in rows] for name in outputs}
    else:
        outputs_read = response["outputs"]
    assert np.array_equal(np.array(outputs_read["number"], np.float32).reshape(shape), numbers)
    assert outputs_read["string"] == np.vectorize(bytes.decode, otypes=[object])(strings).tolist()
    assert outputs_read["one"] == list(range(shape[0]))
    numbers_read = json.loads(write({"number": numbers}, by_row))["predictions" if by_row else "outputs"]
    assert np.array_equal(np.array(numbers_read, np.float32).reshape(shape), numbers)


def test_value_that_is_too_deep_for_the_error_message():
    """Python can parse such a value, but cannot write it into the error message."""
    value = {}
    for _ in range(100_000):
        value = {"a": value}
    with pytest.raises(ServingError, match="must be a string, got a value of type dict") as caught:
        read_inputs({"inputs": {"text": [value]}}, signature("text"))
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_input_of_unknown_rank():
    any_rank = Signature("test", {"x": tf.TensorSpec(None, tf.float32)}, {}, lambda: {})
    for value, shape in ((1.0, ()), ([1.0, 2.0], (2,)), ([[[1.0]]], (1, 1, 1))):
        assert read_inputs(parse_body(json.dumps({"inputs": value}).encode()), any_rank)["x"].shape == shape
    deep = "[" * 17 + "1" + "]" * 17
    with pytest.raises(ServingError, match="are nested too deep: the limit is 16"):
        read_inputs(parse_body(f'{{"inputs": {deep}}}'.encode()), any_rank)


@pytest.mark.parametrize(("name", "row"), [("table", [[7] * 500] * 4), ("number", [0.5] * 2000)])
def test_limits_of_a_dtype_are_read_once_per_array(name, row, monkeypatch):
    """TensorFlow recomputes the limits on each access, which blocked other requests for seconds."""
    reads = []
    for limit in ("min", "max"):
        value = getattr(SPECS[name].dtype, limit)
        monkeypatch.setattr(tf.DType, limit, property(lambda dtype, value=value: reads.append(dtype) or value))
    assert read_inputs({"inputs": {name: row}}, signature(name))[name].size == 2000 and len(reads) <= 2


@pytest.mark.parametrize("by_row", [False, True])
def test_large_arrays_are_encoded_in_small_pieces(by_row, monkeypatch):
    pieces, dump = [], json_tensors._dump
    monkeypatch.setattr(json_tensors, "_dump", lambda value: pieces.append(dump(value)) or pieces[-1])
    sent = list(write_outputs({"attention": np.full([1, 300, 300], 1 / 3, np.float32)}, by_row))
    assert max(map(len, pieces)) < 100_000 and max(map(len, sent)) < 200_000 and len(sent) > 5

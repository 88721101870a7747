"""JSON and arrays: whatever is sent gives arrays or an error, and arrays come back as they were."""

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


def written(outputs, by_row):
    return b"".join(write_outputs(outputs, by_row))


def signature(*names):
    return Signature("test", {name: SPECS[name] for name in names}, {}, lambda: {})


@settings(max_examples=300, deadline=None)
@given(st.sets(st.sampled_from(sorted(SPECS)), min_size=1), st.sampled_from(["instances", "inputs"]), VALUES)
def test_any_json_gives_checked_arrays_or_an_error(names, form, value):
    wanted = signature(*names)
    try:
        arrays = read_inputs(parse_body(json.dumps({form: value}).encode()), wanted)
        wanted.check(arrays, Limits())
    except ServingError as error:
        assert error.code is Code.INVALID_ARGUMENT and error.message
        return
    for name, spec in wanted.inputs.items():
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
def test_arrays_come_back_as_they_were(array):
    answer = json.loads(written({"found": array}, by_row=False))["outputs"]
    again = np.array(answer, array.dtype).reshape(array.shape)
    assert np.array_equal(again, array, equal_nan=array.dtype.kind == "f")


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=8) | st.text(max_size=8).map(str.encode)))
def test_strings_come_back_as_they_were(texts):
    array = np.empty(len(texts), object)
    array[:] = texts
    for name in ("found", "found_bytes"):
        body = written({name: array}, by_row=False).replace(b'"outputs"', b'"inputs"')
        assert read_inputs(parse_body(body), signature("text"))["text"].tolist() == texts


def test_floats_have_no_more_digits_than_they_need():
    array = np.array([0.1, 1 / 3, np.inf, -np.finfo(np.float32).max], np.float32)
    assert written({"score": array}, by_row=True) == b'{"predictions":[0.1,0.33333334,Infinity,-3.4028235e+38]}'


@pytest.mark.parametrize("array", [np.int32(7), np.zeros([], np.float32), np.array(b"a", object)])
def test_a_single_number_has_no_row(array):
    assert json.loads(written({"found": np.asarray(array)}, by_row=False))["outputs"] in (7, 0, "a")
    with pytest.raises(ServingError, match="no common rows"):
        written({"found": np.asarray(array)}, by_row=True)


@pytest.mark.parametrize("by_row", [False, True])
@pytest.mark.parametrize("shape", [(10_000,), (3, 5_000), (5_000, 3), (2, 70, 70), (1, 2, 4_097), (0, 9_000)])
def test_large_arrays_are_written_in_pieces_and_are_whole(shape, by_row):
    numbers = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    strings = np.array([str(number).encode() for number in range(numbers.size)], object).reshape(shape)
    outputs = {"number": numbers, "string": strings, "one": np.arange(shape[0])}
    answer = json.loads(written(outputs, by_row))
    if by_row:
        rows = answer["predictions"]
        assert len(rows) == shape[0]
        found = {name: [row[name] for row in rows] for name in outputs}
    else:
        found = answer["outputs"]
    assert np.array_equal(np.array(found["number"], np.float32).reshape(shape), numbers)
    assert found["string"] == np.vectorize(bytes.decode, otypes=[object])(strings).tolist() if strings.size else True
    assert found["one"] == list(range(shape[0]))
    alone = json.loads(written({"number": numbers}, by_row))["predictions" if by_row else "outputs"]
    assert np.array_equal(np.array(alone, np.float32).reshape(shape), numbers)


def test_a_value_that_is_too_deep_to_be_written_is_refused():
    """It could just be read, and the error could not be written."""
    value = {}
    for _ in range(100_000):
        value = {"a": value}
    with pytest.raises(ServingError, match="must be a string, got a value of type dict") as caught:
        read_inputs({"inputs": {"text": [value]}}, signature("text"))
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_an_input_of_any_rank_is_a_list_of_lists_or_a_number():
    free = Signature("test", {"x": tf.TensorSpec(None, tf.float32)}, {}, lambda: {})
    for value, shape in ((1.0, ()), ([1.0, 2.0], (2,)), ([[[1.0]]], (1, 1, 1))):
        assert read_inputs(parse_body(json.dumps({"inputs": value}).encode()), free)["x"].shape == shape
    deep = "[" * 17 + "1" + "]" * 17
    with pytest.raises(ServingError, match="are nested too deep: the limit is 16"):
        read_inputs(parse_body(f'{{"inputs": {deep}}}'.encode()), free)


@pytest.mark.parametrize(("name", "row"), [("table", [[7] * 500] * 4), ("number", [0.5] * 2000)])
def test_limits_of_a_type_are_read_once_for_all_its_numbers(name, row, monkeypatch):
    """TensorFlow computes them anew each time: a quarter of a million ids held up all other requests for seconds."""
    reads = []
    for limit in ("min", "max"):
        value = getattr(SPECS[name].dtype, limit)
        monkeypatch.setattr(tf.DType, limit, property(lambda dtype, value=value: reads.append(dtype) or value))
    assert read_inputs({"inputs": {name: row}}, signature(name))[name].size == 2000 and len(reads) <= 2


@pytest.mark.parametrize("by_row", [False, True])
def test_a_large_array_is_encoded_in_pieces_between_which_other_threads_run(by_row, monkeypatch):
    pieces, dump = [], json_tensors._dump
    monkeypatch.setattr(json_tensors, "_dump", lambda value: pieces.append(dump(value)) or pieces[-1])
    sent = list(write_outputs({"attention": np.full([1, 300, 300], 1 / 3, np.float32)}, by_row))
    assert max(map(len, pieces)) < 100_000 and max(map(len, sent)) < 200_000 and len(sent) > 5

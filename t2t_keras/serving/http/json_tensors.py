"""Converts arrays to and from the JSON format of TensorFlow Serving's REST interface.

Reference: https://www.tensorflow.org/tfx/serving/api_rest
"""

import base64
import contextlib
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_keras.serving.request_errors import Code, ServingError, invalid
from t2t_keras.serving.served_signatures import MAX_DIMENSIONS, Arrays, Signature

# Outputs with this suffix hold bytes, not text.
_BYTES_SUFFIX = "_bytes"

_VALUES_AT_ONCE = 4096  # values that are encoded at once

_PIECE_CHARACTERS = 1 << 16  # minimum size of a piece of a response, except the last

_dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def parse_json(body: bytes) -> Any:
    """Parses a body as JSON; raises a `ServingError` if it is not JSON in UTF-8.

    NaN and Infinity are allowed, as in TensorFlow Serving.
    """
    try:
        return json.loads(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise invalid(f"the body is not valid UTF-8: {error.reason} at byte {error.start}") from error
    except (ValueError, RecursionError) as error:
        raise invalid(f"JSON Parse error: {error}") from error


def parse_body(body: bytes) -> dict[str, Any]:
    """Parses a request body.

    Raises:
        ServingError: the body is not a UTF-8 JSON object with either "instances" or "inputs", or its "signature_name"
            is not a string.
    """
    call = parse_json(body)
    if not isinstance(call, dict):
        raise invalid("the body must be a JSON object with 'instances' or 'inputs'")
    if ("instances" in call) == ("inputs" in call):
        raise invalid("the body must hold exactly one of 'instances' and 'inputs'")
    if not isinstance(call.get("signature_name", ""), str):
        raise invalid("'signature_name' must be a string")
    return call


def read_inputs(call: dict[str, Any], signature: Signature) -> Arrays:
    """Converts the inputs of a parsed request to arrays.

    Returns:
        Arrays by name, with the dtypes of the signature. Strings are bytes in object arrays.

    Raises:
        ServingError: an input is missing, unknown or of the wrong type.
    """
    columns = _columns(call["inputs"], signature) if "inputs" in call else _rows(call["instances"], signature)
    signature.check_names(columns)
    return {name: _array(name, value, signature.inputs[name]) for name, value in columns.items()}


def write_outputs(outputs: Arrays, by_row: bool) -> Iterator[bytes]:
    """Encodes the body of a response.

    A single output is written without its name.

    Args:
        outputs: arrays by name.
        by_row: whether to write {"predictions": [...]}, for a request with "instances", instead of {"outputs": ...}.

    Returns:
        Lazy iterator over pieces of the body in UTF-8.

    Raises:
        ServingError: `by_row` is set, but the outputs have no common first dimension.
    """
    sizes = {array.shape[:1] for array in outputs.values()}
    if by_row and (len(sizes) > 1 or () in sizes):
        shapes = ", ".join(f"{name!r} {list(array.shape)}" for name, array in outputs.items())
        raise invalid(f"these outputs have no common rows; use the column form ('inputs'): {shapes}")
    form = "predictions" if by_row else "outputs"
    values = {name: _Values(array, name.endswith(_BYTES_SUFFIX)) for name, array in outputs.items()}
    if len(values) == 1:
        text = next(iter(values.values())).text()
    else:
        text = _text_of_rows(values) if by_row else _text_of_object(values)
    return _pieces(itertools.chain([f'{{"{form}":'], text, ["}"]))


def _pieces(texts: Iterable[str]) -> Iterator[bytes]:
    """Joins texts into pieces that are large enough to be sent."""
    pending: list[str] = []
    size = 0
    for text in texts:
        pending.append(text)
        size += len(text)
        if size >= _PIECE_CHARACTERS:
            yield "".join(pending).encode("utf-8")
            pending, size = [], 0
    yield "".join(pending).encode("utf-8")


def _columns(inputs: Any, signature: Signature) -> dict[str, Any]:
    if isinstance(inputs, dict) and not _is_bytes(inputs):
        return inputs
    if len(signature.inputs) != 1:
        names = ", ".join(map(repr, sorted(signature.inputs)))
        raise invalid(f"'inputs' must be an object with {names}: the signature has several inputs")
    return {next(iter(signature.inputs)): inputs}


def _rows(instances: Any, signature: Signature) -> dict[str, list]:
    if not isinstance(instances, list) or not instances:
        raise invalid("'instances' must be a list with at least one element")
    is_named = [isinstance(row, dict) and not _is_bytes(row) for row in instances]
    if not any(is_named) and len(signature.inputs) == 1:
        return {next(iter(signature.inputs)): instances}
    columns: dict[str, list] = {name: [] for name in signature.inputs}
    for number, row in enumerate(instances):
        if not is_named[number]:
            names = ", ".join(map(repr, sorted(signature.inputs)))
            raise invalid(f"element {number} of 'instances' must be an object with {names}")
        if row.keys() != columns.keys():
            with _at(f"element {number} of 'instances'"):
                signature.check_names(row)
        for name, value in row.items():
            columns[name].append(value)
    return columns


@contextlib.contextmanager
def _at(place: str) -> Iterator[None]:
    """Prefixes the message of a `ServingError` in the block with `place`."""
    try:
        yield
    except ServingError as error:
        raise ServingError(error.code, f"{place}: {error.message}") from error


def _is_bytes(value: Any) -> bool:
    """Returns whether a value is TensorFlow Serving's JSON form of bytes, {"b64": ...}."""
    return isinstance(value, dict) and value.keys() == {"b64"}


def _array(name: str, value: Any, spec: tf.TensorSpec) -> np.ndarray:
    """Converts a JSON scalar or nested lists to an array."""
    leaves, shape, rank = [value], [], spec.shape.rank
    while leaves and isinstance(leaves[0], list):
        size = len(leaves[0])
        if not all(isinstance(item, list) and len(item) == size for item in leaves):
            raise invalid(f"the lists of {name!r} must all be of the same length and depth")
        shape.append(size)
        if len(shape) > (most := MAX_DIMENSIONS if rank is None else rank):
            raise invalid(f"the lists of {name!r} are nested too deep: the limit is {most}")
        leaves = [leaf for item in leaves for leaf in item]
    convert = _converter(spec.dtype)
    with _at(repr(name)):
        values = [convert(leaf) for leaf in leaves]
    array = np.empty(len(values), object if spec.dtype == tf.string else spec.dtype.as_numpy_dtype)
    array[:] = values
    return array.reshape(shape)


def _converter(dtype: tf.DType) -> Callable[[Any], Any]:
    if dtype == tf.string:
        return _bytes
    if dtype == tf.bool:
        return _bool
    if dtype.is_integer:
        # Read only once, because TensorFlow recomputes the limits on each access, which would dominate the run time.
        least, most = dtype.min, dtype.max
        return lambda leaf: _integer(leaf, dtype.name, least, most)
    if dtype.is_floating:
        largest = float(dtype.max)
        return lambda leaf: _float(leaf, dtype.name, largest)
    raise ServingError(Code.UNIMPLEMENTED, f"no JSON form for the type {dtype.name}")


def _bytes(leaf: Any) -> bytes:
    if isinstance(leaf, str):
        try:
            return leaf.encode("utf-8")
        except UnicodeEncodeError as error:
            raise invalid(f"not valid Unicode: {error.reason}") from error
    if _is_bytes(leaf) and isinstance(leaf["b64"], str):
        try:
            return base64.b64decode(leaf["b64"], validate=True)
        except ValueError as error:
            raise invalid(f"not valid base64: {error}") from error
    raise invalid(f"must be a string, got {quoted(leaf)}")


def _bool(leaf: Any) -> bool:
    if not isinstance(leaf, bool):
        raise invalid(f"must be true or false, got {quoted(leaf)}")
    return leaf


def _integer(leaf: Any, type_name: str, least: int, most: int) -> int:
    if not isinstance(leaf, int) or isinstance(leaf, bool):
        raise invalid(f"must be an integer, got {quoted(leaf)}")
    if not least <= leaf <= most:
        raise invalid(f"must fit into {type_name}, got {quoted(leaf)}")
    return leaf


def _float(leaf: Any, type_name: str, largest: float) -> float:
    if not isinstance(leaf, int | float) or isinstance(leaf, bool):
        raise invalid(f"must be a number, got {quoted(leaf)}")
    # `math.isfinite` fails for a JSON integer that no float can hold.
    infinite = isinstance(leaf, float) and not math.isfinite(leaf)
    if not infinite and abs(leaf) > largest:
        raise invalid(f"must fit into {type_name}, got {quoted(leaf)}")
    return leaf


def quoted(leaf: Any) -> str:
    """Formats a JSON value for an error message, truncated to 40 characters."""
    try:
        text = json.dumps(leaf)
    except (RecursionError, ValueError):  # encoding needs more stack than the decoding, which succeeded
        return f"a value of type {type(leaf).__name__}"
    return text if len(text) <= 40 else f"{text[:40]}..."


class _Values:
    """An array of any shape to be encoded as JSON, its strings as text or, with `as_bytes`, in base64."""

    def __init__(self, array: np.ndarray, as_bytes: bool) -> None:
        self.array = array
        self._as_bytes = as_bytes

    def __getitem__(self, rows: int | slice) -> "_Values":
        return _Values(np.asarray(self.array[rows], self.array.dtype), self._as_bytes)

    def to_lists(self) -> Any:
        """Returns the array as nested lists of JSON values."""
        leaves: list[Any]
        if self.array.dtype == object:
            leaves = [_text(leaf, self._as_bytes) for leaf in self.array.reshape(-1)]
        elif self.array.dtype == np.float32:
            # The fewest digits that identify the float32: 0.1, not 0.10000000149011612.
            leaves = [float(text) for text in self.array.reshape(-1).astype("U32")]
        else:
            return self.array.tolist()
        values = np.empty(len(leaves), object)
        values[:] = leaves
        return values.reshape(self.array.shape).tolist()

    def text(self) -> Iterator[str]:
        """Yields the JSON text in pieces of a few thousand values, so that other threads can run in between."""
        if self.array.size <= _VALUES_AT_ONCE:
            yield _dump(self.to_lists())
            return
        yield "["
        for rows in _groups(len(self.array), self.array.size):
            if rows.start:
                yield ","
            if rows.stop - rows.start > 1:
                yield _dump(self[rows].to_lists())[1:-1]
            else:
                yield from self[rows.start].text()
        yield "]"


def _text_of_object(values: dict[str, _Values]) -> Iterator[str]:
    """Yields the JSON text of {name: array, ...} in pieces."""
    for number, (name, value) in enumerate(values.items()):
        yield f"{',' if number else '{'}{_dump(name)}:"
        yield from value.text()
    yield "}"


def _text_of_rows(values: dict[str, _Values]) -> Iterator[str]:
    """Yields the JSON text of [{name: row, ...}, ...] in pieces."""
    arrays = [value.array for value in values.values()]
    size = sum(array.size for array in arrays)
    yield "["
    for rows in _groups(len(arrays[0]), size):
        if rows.start:
            yield ","
        if rows.stop - rows.start > 1 or size <= _VALUES_AT_ONCE:
            listed_rows = zip(*(value[rows].to_lists() for value in values.values()), strict=True)
            yield _dump([dict(zip(values, row, strict=True)) for row in listed_rows])[1:-1]
        else:
            yield from _text_of_object({name: value[rows.start] for name, value in values.items()})
    yield "]"


def _groups(num_rows: int, size: int) -> Iterator[slice]:
    """Yields slices of rows that are encoded at once; all rows together have `size` values."""
    num_rows_at_once = max(1, _VALUES_AT_ONCE * num_rows // max(size, 1))
    for start in range(0, num_rows, num_rows_at_once):
        yield slice(start, min(start + num_rows_at_once, num_rows))


def _text(leaf: bytes, as_bytes: bool) -> str | dict[str, str]:
    if not as_bytes:
        try:
            return leaf.decode("utf-8")
        except UnicodeDecodeError:
            pass  # not text, so fall back to base64
    return {"b64": base64.b64encode(leaf).decode("ascii")}

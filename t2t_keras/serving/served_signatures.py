"""Signatures of SavedModels, which check the inputs of a call and compute its outputs."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np
import tensorflow as tf

from t2t_keras.serving.options import Limits
from t2t_keras.serving.request_errors import invalid

Arrays = dict[str, np.ndarray]
Function = Callable[..., dict[str, tf.Tensor]]

# Estimated bytes of text per output element, where the size of an output depends on the text. Tokens are rarely
# shorter. If they are, `check_size` rejects the outputs after they are computed.
_BYTES_PER_ELEMENT = 2

# Costs in units of bytes of text: of an empty row, and of each value, such as a token id, in a row of variable length.
ROW_COST = 32
_NUMBER_COST = 4

MAX_DIMENSIONS = 16  # maximum rank of an input

_numbers = itertools.count()


@dataclasses.dataclass(frozen=True, eq=False)
class Signature:
    """A signature of a SavedModel.

    Attributes:
        name: name of the signature in requests.
        inputs: dtype and shape of each input by name. A call must provide all of them.
        outputs: dtype and shape of each output by name.
        function: takes the inputs as keyword tensors and returns the outputs by name.
        repeatable: whether the same inputs always produce the same outputs, so that outputs may be cached.
        number: identifies the signature within this process. Names are not unique across models and versions.
    """

    name: str
    inputs: dict[str, tf.TensorSpec]
    outputs: dict[str, tf.TensorSpec]
    function: Function
    repeatable: bool = False
    number: int = dataclasses.field(default_factory=_numbers.__next__)

    @functools.cached_property
    def in_rows(self) -> bool:
        """Whether the first dimension of all inputs and outputs is a variable batch dimension."""
        shapes = [spec.shape for spec in (*self.inputs.values(), *self.outputs.values())]
        return bool(self.inputs) and all(shape.rank and shape[0] is None for shape in shapes)

    @functools.cached_property
    def mergeable(self) -> bool:
        """Whether calls may be merged into a batch: all other dimensions are static, so no call affects another."""
        shapes = [spec.shape for spec in (*self.inputs.values(), *self.outputs.values())]
        return self.in_rows and all(shape[1:].is_fully_defined() for shape in shapes)

    def run(self, inputs: Arrays) -> Arrays:
        """Runs the signature on checked inputs; strings are bytes in object arrays.

        Raises:
            tf.errors.OpError: the graph rejects a value.
        """
        tensors = {name: tf.constant(array, self.inputs[name].dtype) for name, array in inputs.items()}
        kinds = {tf.string: object}  # TensorFlow returns plain bytes for a scalar string
        outputs = self.function(**tensors)
        return {name: np.asarray(output.numpy(), kinds.get(output.dtype)) for name, output in outputs.items()}

    def check(self, inputs: Arrays, limits: Limits) -> int:
        """Checks the inputs of a call before anything is computed.

        Returns:
            Number of sentences: the first dimension of the inputs, or 1 if all inputs are scalars.

        Raises:
            ServingError: the inputs do not match the signature, there are too many rows, a row is too long, or the
                outputs would be too large.
        """
        self.check_names(inputs)
        for name, array in inputs.items():
            _check_spec(name, array, self.inputs[name])
        rows = {name: array.shape[0] for name, array in inputs.items() if array.ndim}
        if self.in_rows and len(set(rows.values())) > 1:
            sizes = ", ".join(f"{name!r} has {size}" for name, size in sorted(rows.items()))
            raise invalid(f"the first dimension of all inputs must be the same: {sizes}")
        num_rows = max(rows.values(), default=1)
        if not num_rows:
            raise invalid("the request is empty: the first dimension of its inputs is 0")
        check_num_rows(num_rows, limits)
        for name, array in inputs.items():
            if array.dtype == object:
                _check_lengths(name, array, limits)
            elif (length := _free_size(array.shape, self.inputs[name].shape)) > limits.max_input_length:
                raise invalid(
                    f"a row of {name!r} has {length} numbers: the limit is max_input_length={limits.max_input_length}"
                )
        count = self._expected_elements(inputs, num_rows)
        if count > limits.max_output_elements:
            raise invalid(
                f"the outputs of {self.name!r} would have about {count} elements for {num_rows} sentences of this "
                f"length: the limit is max_output_elements={limits.max_output_elements}; send fewer or shorter ones"
            )
        return num_rows

    def _expected_elements(self, inputs: Arrays, num_rows: int) -> int:
        """Estimates the number of elements in all outputs, with the longest input as the size of unknown dimensions."""
        lengths = [1]
        for name, array in inputs.items():
            if array.dtype == object:
                lengths += [math.ceil(len(text) / _BYTES_PER_ELEMENT) for text in array.reshape(-1)]
            else:
                lengths.append(_free_size(array.shape, self.inputs[name].shape))
        longest = max(lengths)
        return sum(
            math.prod([num_rows, *(longest if size is None else size for size in sizes)]) for sizes in self._output_rows
        )

    @functools.cached_property
    def _output_rows(self) -> list[list[int | None]]:
        """The sizes of a row of each output, except scalar outputs and outputs of unknown rank."""
        return [[*spec.shape][1:] for spec in self.outputs.values() if spec.shape.rank]

    def costs(self, inputs: Arrays, num_rows: int) -> np.ndarray:
        """Estimates the work for each row of checked inputs, in units of bytes of text; int64 [num_rows]."""
        costs = np.full(num_rows, ROW_COST)
        for name, array in inputs.items():
            if array.shape[:1] != (num_rows,):
                continue
            if array.dtype == object:
                lengths = np.fromiter(map(len, array.reshape(-1)), np.int64, array.size)
                costs += lengths.reshape(num_rows, -1).sum(axis=1)
            elif not self.inputs[name].shape[1:].is_fully_defined():
                costs += _NUMBER_COST * _free_size(array.shape, self.inputs[name].shape)
        return costs

    def check_names(self, names: Collection[str]) -> None:
        """Raises a `ServingError` unless `names` are exactly the names of the inputs."""
        unknown, missing = set(names) - set(self.inputs), set(self.inputs) - set(names)
        if unknown or missing:
            raise invalid(
                f"the inputs of {self.name!r} are {_quote_names(self.inputs)}"
                + (f"; unknown: {_quote_names(unknown)}" if unknown else "")
                + (f"; missing: {_quote_names(missing)}" if missing else "")
            )

    def check_outputs(self, names: Sequence[str]) -> None:
        """Raises a `ServingError` if `names`, the requested outputs, contains an unknown or a duplicate name."""
        unknown = set(names) - set(self.outputs)
        if unknown:
            raise invalid(
                f"the outputs of {self.name!r} are {_quote_names(self.outputs)}; unknown: {_quote_names(unknown)}"
            )
        if len(set(names)) < len(names):
            raise invalid(f"an output is requested twice: {', '.join(map(repr, names))}")


def check_size(outputs: Arrays, limits: Limits) -> None:
    """Raises a `ServingError` if all outputs together have more elements than `max_output_elements`."""
    num_elements = sum(array.size for array in outputs.values())
    if num_elements > limits.max_output_elements:
        raise invalid(
            f"the outputs have {num_elements} elements: the limit is max_output_elements={limits.max_output_elements}; "
            "send fewer or shorter sentences"
        )


def _free_size(sizes: Iterable[int], shape: tf.TensorShape) -> int:
    """Returns the product of a row's sizes in the dimensions that the signature leaves unspecified."""
    if shape.rank is None:
        return math.prod([*sizes][1:])
    return math.prod(size for size, dim in list(zip(sizes, shape, strict=True))[1:] if dim is None)


def check_num_rows(num_rows: int, limits: Limits) -> None:
    """Raises a `ServingError` if a request has too many rows."""
    if num_rows > limits.max_sentences:
        raise invalid(f"{num_rows} sentences in a request: the limit is max_sentences={limits.max_sentences}")


def _check_spec(name: str, array: np.ndarray, spec: tf.TensorSpec) -> None:
    dtype = np.dtype(object) if spec.dtype == tf.string else np.dtype(spec.dtype.as_numpy_dtype)
    if array.dtype != dtype:
        actual = "string" if array.dtype == object else array.dtype
        raise invalid(f"input {name!r} must be of type {spec.dtype.name}, got {actual}")
    if not _is_compatible(array.shape, spec.shape):
        raise invalid(f"input {name!r} must have the shape {_shape(spec.shape)}, got {_shape(array.shape)}")


def _is_compatible(sizes: Collection[int], shape: tf.TensorShape) -> bool:
    """Computes `shape.is_compatible_with(sizes)`, which would take a tenth of the time of a small request."""
    if shape.rank is None:
        return True
    return len(sizes) == shape.rank and all(dim in (None, size) for size, dim in zip(sizes, shape, strict=True))


def _check_lengths(name: str, array: np.ndarray, limits: Limits) -> None:
    for row, text in enumerate(array.reshape(-1)):
        if len(text) > limits.max_sentence_bytes:
            raise invalid(
                f"string {row} of {name!r} has {len(text)} bytes: the limit is "
                f"max_sentence_bytes={limits.max_sentence_bytes}"
            )


def _shape(shape: Iterable[int | None]) -> str:
    return "[" + ", ".join("any" if size is None else str(size) for size in shape) + "]"


def _quote_names(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in sorted(names))

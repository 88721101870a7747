"""A signature of a SavedModel: checks the inputs of a call and computes its outputs."""

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

# Estimated bytes of text per element of an output whose size depends on the text. Tokens are rarely shorter; if they
# are, `check_size` refuses the computed outputs.
_BYTES_PER_ELEMENT = 2

# The cost of an empty row, and of each number in a row of variable length, such as a token id, in bytes of text.
ROW_COST = 32
_NUMBER_COST = 4

MOST_DIMENSIONS = 16  # of an input

_numbers = itertools.count()


@dataclasses.dataclass(frozen=True, eq=False)
class Signature:
    """A signature of a SavedModel.

    Attributes:
        name: its name in requests.
        inputs: dtype and shape of each input by name; a call must give all of them.
        outputs: dtype and shape of each output by name.
        function: takes the inputs as tensors by keyword and returns the outputs by name.
        repeatable: whether the same inputs always have the same outputs, so that these may be kept.
        number: a number that no other signature of this process has, unlike its name.
    """

    name: str
    inputs: dict[str, tf.TensorSpec]
    outputs: dict[str, tf.TensorSpec]
    function: Function
    repeatable: bool = False
    number: int = dataclasses.field(default_factory=_numbers.__next__)

    @functools.cached_property
    def in_rows(self) -> bool:
        """Whether the first dimension of all inputs and outputs is the batch."""
        shapes = [spec.shape for spec in (*self.inputs.values(), *self.outputs.values())]
        return bool(self.inputs) and all(shape.rank and shape[0] is None for shape in shapes)

    @functools.cached_property
    def mergeable(self) -> bool:
        """Whether calls may be merged along the batch: all other sizes are known, so none depends on other calls."""
        shapes = [spec.shape for spec in (*self.inputs.values(), *self.outputs.values())]
        return self.in_rows and all(shape[1:].is_fully_defined() for shape in shapes)

    def run(self, inputs: Arrays) -> Arrays:
        """Runs checked inputs; strings are bytes in object arrays. Bad values raise `tf.errors.OpError`."""
        tensors = {name: tf.constant(array, self.inputs[name].dtype) for name, array in inputs.items()}
        kinds = {tf.string: object}  # of a scalar string, TensorFlow gives bytes
        outputs = self.function(**tensors)
        return {name: np.asarray(output.numpy(), kinds.get(output.dtype)) for name, output in outputs.items()}

    def check(self, inputs: Arrays, limits: Limits) -> int:
        """Checks a call's inputs before anything is computed, and returns its number of sentences.

        That number is the first dimension of the inputs, or 1 if they have none.

        Raises:
            ServingError: the inputs do not fit the signature, are too many or too long, or make outputs too large.
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
        expected = self._expected_elements(inputs, num_rows)
        if expected > limits.max_output_elements:
            raise invalid(
                f"the outputs of {self.name!r} would have some {expected} elements for {num_rows} sentences of this "
                f"length: the limit is max_output_elements={limits.max_output_elements}; send fewer or shorter ones"
            )
        return num_rows

    def _expected_elements(self, inputs: Arrays, num_rows: int) -> int:
        """Estimates the number of elements of all outputs; an unknown dimension counts as long as the longest input."""
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
        """The sizes of a row of each output that has rows."""
        return [[*spec.shape][1:] for spec in self.outputs.values() if spec.shape.rank]

    def costs(self, inputs: Arrays, num_rows: int) -> np.ndarray:
        """The approximate work of each row of checked inputs, in bytes of text: int64 [num_rows]."""
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
                f"the inputs of {self.name!r} are {_listed(self.inputs)}"
                + (f"; unknown: {_listed(unknown)}" if unknown else "")
                + (f"; missing: {_listed(missing)}" if missing else "")
            )

    def check_outputs(self, names: Sequence[str]) -> None:
        """Raises a `ServingError` if `names`, the requested outputs, has an unknown name or the same name twice."""
        unknown = set(names) - set(self.outputs)
        if unknown:
            raise invalid(f"the outputs of {self.name!r} are {_listed(self.outputs)}; unknown: {_listed(unknown)}")
        if len(set(names)) < len(names):
            raise invalid(f"an output is asked for twice: {', '.join(map(repr, names))}")


def check_size(outputs: Arrays, limits: Limits) -> None:
    """Raises a `ServingError` if the outputs, arrays by name, have more elements in all than the limit."""
    num_elements = sum(array.size for array in outputs.values())
    if num_elements > limits.max_output_elements:
        raise invalid(
            f"the outputs have {num_elements} elements: the limit is max_output_elements={limits.max_output_elements}; "
            "send fewer or shorter sentences"
        )


def _free_size(sizes: Iterable[int], shape: tf.TensorShape) -> int:
    """The number of elements of a row in the dimensions that the signature leaves open."""
    if shape.rank is None:
        return math.prod([*sizes][1:])
    return math.prod(size for size, known in list(zip(sizes, shape, strict=True))[1:] if known is None)


def check_num_rows(num_rows: int, limits: Limits) -> None:
    """Raises a `ServingError` if a request has too many rows."""
    if num_rows > limits.max_sentences:
        raise invalid(f"{num_rows} sentences in a request: the limit is max_sentences={limits.max_sentences}")


def _check_spec(name: str, array: np.ndarray, spec: tf.TensorSpec) -> None:
    wanted = np.dtype(object) if spec.dtype == tf.string else np.dtype(spec.dtype.as_numpy_dtype)
    if array.dtype != wanted:
        got = "string" if array.dtype == object else array.dtype
        raise invalid(f"input {name!r} must be of type {spec.dtype.name}, got {got}")
    if not _is_of(array.shape, spec.shape):
        raise invalid(f"input {name!r} must have the shape {_shape(spec.shape)}, got {_shape(array.shape)}")


def _is_of(sizes: Collection[int], shape: tf.TensorShape) -> bool:
    """`shape.is_compatible_with(sizes)`, which takes a tenth of what a small request costs."""
    if shape.rank is None:
        return True
    return len(sizes) == shape.rank and all(known in (None, size) for size, known in zip(sizes, shape, strict=True))


def _check_lengths(name: str, array: np.ndarray, limits: Limits) -> None:
    for row, text in enumerate(array.reshape(-1)):
        if len(text) > limits.max_sentence_bytes:
            raise invalid(
                f"string {row} of {name!r} has {len(text)} bytes: the limit is "
                f"max_sentence_bytes={limits.max_sentence_bytes}"
            )


def _shape(shape: Iterable[int | None]) -> str:
    return "[" + ", ".join("any" if size is None else str(size) for size in shape) + "]"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in sorted(names))

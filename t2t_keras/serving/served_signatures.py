"""One way to call a SavedModel: named arrays in, named arrays out."""

import dataclasses
import math
from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np
import tensorflow as tf

from t2t_keras.serving.options import Limits
from t2t_keras.serving.request_errors import invalid

Arrays = dict[str, np.ndarray]

# How many bytes of text make an element of an output whose size follows the text's, before that size is known. Tokens
# are seldom shorter. Where they are, the outputs are refused once they are there.
_BYTES_PER_ELEMENT = 2

# What a row costs before anything is in it, and a number of a row of any length, such as a token id, in bytes of text.
_ROW_COST = 32
_NUMBER_COST = 4


@dataclasses.dataclass(frozen=True, eq=False)
class Signature:
    """A signature of a SavedModel.

    Attributes:
        name: the name that requests call it by.
        inputs: name -> dtype and shape, all of which a call must be given.
        outputs: name -> dtype and shape.
        function: takes the inputs as tensors by name, gives the outputs by name.
    """

    name: str
    inputs: dict[str, tf.TensorSpec]
    outputs: dict[str, tf.TensorSpec]
    function: Callable[..., dict[str, tf.Tensor]]

    @property
    def in_rows(self) -> bool:
        """Whether the first dimension of all inputs and outputs is the batch."""
        shapes = [spec.shape for spec in (*self.inputs.values(), *self.outputs.values())]
        return bool(self.inputs) and all(shape.rank and shape[0] is None for shape in shapes)

    @property
    def mergeable(self) -> bool:
        """Whether calls may be merged along the first dimension, the batch.

        Where another dimension is unknown too, its size would depend on what else is in the batch.
        """
        shapes = [spec.shape for spec in (*self.inputs.values(), *self.outputs.values())]
        return self.in_rows and all(shape[1:].is_fully_defined() for shape in shapes)

    def run(self, inputs: Arrays) -> Arrays:
        """Runs the function.

        Args:
            inputs: name -> array, as `checked` has let them pass.

        Returns:
            Name -> array; strings are bytes in an array of objects.

        Raises:
            tf.errors.OpError: the graph refused the values.
        """
        tensors = {name: tf.constant(array, self.inputs[name].dtype) for name, array in inputs.items()}
        return {name: tensor.numpy() for name, tensor in self.function(**tensors).items()}

    def check(self, inputs: Arrays, limits: Limits) -> int:
        """Counts the sentences of a call, before anything is computed.

        Args:
            inputs: name -> array, of the names of `check_names`.
            limits: what a call may ask for.

        Returns:
            The first dimension of the inputs; 1 where they have none.

        Raises:
            ServingError: the inputs are not what the signature takes, too many or too long, or the outputs would be
                too large.
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
        if num_rows > limits.max_sentences:
            raise invalid(f"{num_rows} sentences in a request: the limit is max_sentences={limits.max_sentences}")
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
        """How large the outputs of a call will be: where a dimension is unknown, as long as the longest input."""
        lengths = [1]
        for name, array in inputs.items():
            if array.dtype == object:
                lengths += [math.ceil(len(text) / _BYTES_PER_ELEMENT) for text in array.reshape(-1)]
            else:
                lengths.append(_free_size(array.shape, self.inputs[name].shape))
        longest = max(lengths)
        return sum(
            math.prod([num_rows, *(longest if size is None else size for size in spec.shape[1:])])
            for spec in self.outputs.values()
            if spec.shape.rank
        )

    def costs(self, inputs: Arrays, num_rows: int) -> np.ndarray:
        """About how much work each row is, in bytes of text.

        Args:
            inputs: name -> array, checked.
            num_rows: as `check` counts them.

        Returns:
            int64 [num_rows].
        """
        costs = np.full(num_rows, _ROW_COST)
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
        """Says which inputs are missing or unknown.

        Args:
            names: the names of a call's inputs.

        Raises:
            ServingError: these are not the inputs' names.
        """
        unknown, missing = set(names) - set(self.inputs), set(self.inputs) - set(names)
        if unknown or missing:
            raise invalid(
                f"the inputs of {self.name!r} are {_listed(self.inputs)}"
                + (f"; unknown: {_listed(unknown)}" if unknown else "")
                + (f"; missing: {_listed(missing)}" if missing else "")
            )

    def check_outputs(self, names: Sequence[str]) -> None:
        """Says which of the outputs that were asked for there are not.

        Args:
            names: what a request wants; none means all.

        Raises:
            ServingError: an unknown name, or one twice.
        """
        unknown = set(names) - set(self.outputs)
        if unknown:
            raise invalid(f"the outputs of {self.name!r} are {_listed(self.outputs)}; unknown: {_listed(unknown)}")
        if len(set(names)) < len(names):
            raise invalid(f"an output is asked for twice: {', '.join(map(repr, names))}")


def check_size(outputs: Arrays, limits: Limits) -> None:
    """Refuses outputs that are too large to be sent.

    Args:
        outputs: name -> array.
        limits: what a call may ask for.

    Raises:
        ServingError: they have more elements than the limit.
    """
    found = sum(array.size for array in outputs.values())
    if found > limits.max_output_elements:
        raise invalid(
            f"the outputs have {found} elements: the limit is max_output_elements={limits.max_output_elements}; "
            "send fewer or shorter sentences"
        )


def _free_size(sizes: Iterable[int], shape: tf.TensorShape) -> int:
    """How many elements a row has in those of its dimensions that the signature leaves open."""
    return math.prod(size for size, known in list(zip(sizes, shape, strict=True))[1:] if known is None)


def _check_spec(name: str, array: np.ndarray, spec: tf.TensorSpec) -> None:
    wanted = np.dtype(object) if spec.dtype == tf.string else np.dtype(spec.dtype.as_numpy_dtype)
    if array.dtype != wanted:
        got = "string" if array.dtype == object else array.dtype
        raise invalid(f"input {name!r} must be of type {spec.dtype.name}, got {got}")
    if not spec.shape.is_compatible_with(array.shape):
        raise invalid(f"input {name!r} must have the shape {_shape(spec.shape)}, got {_shape(array.shape)}")


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

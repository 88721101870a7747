"""Maps a format's tensors to this project's weights of a Transformer by name."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from t2t_keras.config import TransformerConfig
from t2t_keras.errors import InputError

Arrays = Mapping[str, np.ndarray]

_NUMBERS = "kernel", "bias"
_NORM = "scale", "offset"


class Entry(NamedTuple):
    """One of a format's tensors and the weights that it holds.

    Attributes:
        tensor: the name of the format's tensor.
        weights: the names of the weights that the tensor holds, concatenated along their last axis.
        transposed: whether the format's tensor is a matrix [out, in].
    """

    tensor: str
    weights: tuple[str, ...]
    transposed: bool


class LayerNames(NamedTuple):
    """A format's names for the weights of layers.

    Attributes:
        parts: the format's name for each part of a layer, with {} for the kind of weight. Keys are linear maps such as
            "self_attention/query", joined by "+" if they share one tensor, and layer normalisations such as
            "self_attention_residual/norm".
        layer: the full name of a tensor, with {stack}, {number} and {part}.
        final_norm: the full name of a stack's final layer normalisation, with {stack} and {} for the kind of weight.
        kinds: the format's words for "kernel", "bias", "scale" and "offset".
        transposed: whether matrices are [out, in].
        first: the number of the first layer.
    """

    parts: Mapping[str, str]
    layer: str
    final_norm: str
    kinds: Mapping[str, str]
    transposed: bool
    first: int = 0

    def entries(self, config: TransformerConfig) -> Iterator[Entry]:
        """Yields the tensors of all layers of a model."""
        for stack, count in (("encoder", config.num_encoder_layers), ("decoder", config.num_decoder_layers)):
            for index in range(count):
                for part, tensor in self.parts.items():
                    if stack == "encoder" and part.startswith("cross_attention"):
                        continue
                    name = self.layer.format(stack=stack, number=self.first + index, part=tensor)
                    yield from self._kinds(config, f"{stack}/layer_{index}/{part}", name)
            if config.norm_position == "pre":
                yield from self._kinds(config, f"{stack}/final_norm", self.final_norm.replace("{stack}", stack))

    def _kinds(self, config: TransformerConfig, part: str, tensor: str) -> Iterator[Entry]:
        """Yields the tensors of one part, such as "encoder/layer_0/self_attention/query"."""
        place, _, names = part.rpartition("/")
        is_norm = names.endswith("norm")
        for kind in _NORM if is_norm else _NUMBERS:
            if kind == "bias" and "attention" in place and not config.use_attention_bias:
                continue
            suffix = f"/{kind}" if is_norm else f"_{kind}"
            weights = tuple(f"{place}/{name}{suffix}" for name in names.split("+"))
            yield Entry(tensor.replace("{}", self.kinds[kind]), weights, self.transposed and kind == "kernel")


def weights_of(tensors: Arrays, entries: Sequence[Entry], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """Converts a format's tensors to this project's weights: float32 arrays by name, of the given shapes.

    Raises:
        InputError: a tensor is missing or has the wrong shape; names it.
    """
    weights: dict[str, Any] = {}
    for entry in entries:
        if entry.tensor not in tensors:
            raise InputError(f"there is no tensor {entry.tensor}")
        array = np.asarray(tensors[entry.tensor])
        widths = [shapes[name][-1] for name in entry.weights]
        expected = (*shapes[entry.weights[0]][:-1], sum(widths))
        expected = expected[::-1] if entry.transposed else expected
        if array.shape != expected:
            raise InputError(f"the tensor {entry.tensor} must have shape {list(expected)}, got {list(array.shape)}")
        array = (array.T if entry.transposed else array).astype(np.float32)
        parts = np.split(array, np.cumsum(widths)[:-1], axis=-1)
        weights |= {name: np.ascontiguousarray(part) for name, part in zip(entry.weights, parts, strict=True)}
    return weights


def tensors_of(weights: Arrays, entries: Sequence[Entry]) -> dict[str, np.ndarray]:
    """Converts this project's weights to a format's tensors; the inverse of `weights_of`."""
    tensors = {}
    for entry in entries:
        array = np.concatenate([weights[name] for name in entry.weights], axis=-1)
        tensors[entry.tensor] = np.ascontiguousarray(array.T if entry.transposed else array)
    return tensors


def check_all_known(tensors: Arrays, entries: Sequence[Entry], ignored: Sequence[str]) -> None:
    """Checks that every tensor has an entry, or a name that begins with one of `ignored`.

    Raises:
        InputError: there are other tensors; names them.
    """
    names = {entry.tensor for entry in entries}
    unknown = [name for name in tensors if name not in names and not name.startswith(tuple(ignored))]
    if unknown:
        remainder = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
        raise InputError(f"some tensors do not belong to a Transformer: {', '.join(unknown[:5])}{remainder}")

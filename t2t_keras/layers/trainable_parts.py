"""The frozen parts of a layer or a model, as its configuration stores them."""

from collections.abc import Iterator, Mapping
from typing import Any

import keras

# The entry of a configuration; it exists only if `trainable` of the whole does not apply to all parts.
ENTRY = "trainable_parts"


def part_arguments(layer: keras.layers.Layer) -> dict[str, Any]:
    """Returns the arguments of `keras.layers.Layer` that a layer or a model passes on to its parts."""
    return {"dtype": layer.dtype_policy, "trainable": layer.trainable}


def trainable_parts(layer: keras.layers.Layer) -> dict[str, dict[str, bool]]:
    """Returns the entry of a configuration for the parts whose `trainable` differs from that of the whole.

    Args:
        layer: a layer or a model.

    Returns:
        `trainable` by the path of the part, such as "layers.0.self_attention", under `ENTRY`; empty if all parts agree.
        A part that agrees with the layer that holds it is omitted.
    """
    parts = {path: part.trainable for path, holder, part in _parts(layer) if part.trainable != holder.trainable}
    return {ENTRY: parts} if parts else {}


def restore_trainable(layer: keras.layers.Layer, parts: Mapping[str, bool]) -> None:
    """Makes a layer's parts trainable or not, as `trainable_parts` recorded.

    Args:
        layer: a layer or a model, made from its configuration.
        parts: the value of `ENTRY`. Parts that the layer makes only in `build` are ignored.
    """
    if not layer.trainable:
        _set_trainable(layer, False)
    by_path = {path: part for path, _, part in _parts(layer)}
    for path, trainable in parts.items():  # a part comes after the layer that holds it
        if path in by_path:
            _set_trainable(by_path[path], trainable)


def _set_trainable(layer: keras.layers.Layer, trainable: bool) -> None:
    """Sets `trainable` of a layer and all its parts."""
    layer.trainable = not trainable  # on TensorFlow, assigning an attribute its current value has no effect
    layer.trainable = trainable


def _parts(layer: keras.layers.Layer) -> list[tuple[str, keras.layers.Layer, keras.layers.Layer]]:
    """Returns the path, the holder and the part itself, for each layer within a layer; a shared part occurs once."""
    parts, seen = [], {id(layer)}

    def collect(holder: keras.layers.Layer, prefix: str) -> None:
        for name, part in _direct_parts(holder):
            if id(part) not in seen:
                seen.add(id(part))
                parts.append((prefix + name, holder, part))
                collect(part, f"{prefix}{name}.")

    collect(layer, "")
    return parts


def _direct_parts(layer: keras.layers.Layer) -> Iterator[tuple[str, keras.layers.Layer]]:
    """Yields the layers in attributes of a layer, with the attribute's name and the place in a list or dict."""
    # On PyTorch, attributes that are modules are in a dict.
    attributes = {**vars(layer), **vars(layer).get("_modules", {})}
    for name, value in attributes.items():
        if isinstance(value, keras.layers.Layer):
            yield name, value
        elif isinstance(value, list | tuple | Mapping) and not name.startswith("_"):  # not Keras's own lists of layers
            items = value.items() if isinstance(value, Mapping) else enumerate(value)
            yield from ((f"{name}.{key}", item) for key, item in items if isinstance(item, keras.layers.Layer))

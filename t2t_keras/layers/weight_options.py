"""Keras's options for the weights of a layer: initializers, regularizers and constraints."""

from collections.abc import Callable
from typing import Any

import keras

from t2t_keras.config.layer_settings import FIELDS, LayerSettings
from t2t_keras.layers.layer import Layer
from t2t_keras.values import NonNegativeFloat, check_arguments

_KINDS: dict[str, Callable[[Any], Any]] = {
    "initializer": keras.initializers.get,
    "regularizer": keras.regularizers.get,
    "constraint": keras.constraints.get,
}
_OPTIONS = tuple(f"{weight}_{kind}" for weight in ("kernel", "bias") for kind in _KINDS)


def weight_option(name: str, value: Any) -> Any:
    """Returns an option as a Keras object.

    Args:
        name: the argument, such as "kernel_initializer"; its last word is the kind.
        value: an object, a function, a name or a serialized configuration, as in Keras's layers.

    Returns:
        The object or function; None and the names of Keras's initializers are returned unchanged.

    Raises:
        ValueError: Keras does not know the value; names the argument.
    """
    kind = name.rpartition("_")[-1]
    if value is None or (kind == "initializer" and isinstance(value, str) and hasattr(keras.initializers, value)):
        return value  # a name stays a name, because Keras draws a random seed for each initializer object
    try:
        return _KINDS[kind](value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"`{name}` must be a Keras {kind} or its name, got {value!r}") from error


def copy_initializer(initializer: Any, index: int = 0) -> Any:
    """Returns a copy of an initializer. Unless its seed is fixed, the copy draws a new one, so that weights differ.

    Args:
        initializer: an object, which is copied; a function, a name, or an object that draws from a
            `keras.random.SeedGenerator`, which is returned unchanged, because each call gives other values.
        index: number that is added to a fixed seed, so that several weights of the same shape differ.
    """
    if not isinstance(initializer, keras.initializers.Initializer):
        return initializer
    if isinstance(getattr(initializer, "seed", None), keras.random.SeedGenerator):
        return initializer
    config = initializer.get_config()
    if isinstance(config.get("seed"), int):
        config["seed"] += index
    return type(initializer).from_config(config)


def options_for(layer: Layer, weight: str, initializer: Any = None) -> dict[str, Any]:
    """Returns a layer's options for a kind of weights, such as "kernel", as arguments of `add_weight`.

    An `initializer` replaces the layer's own.
    """
    options = {kind: getattr(layer, f"{weight}_{kind}") for kind in _KINDS}
    return {**options, "initializer": copy_initializer(options["initializer"]) if initializer is None else initializer}


class WeightedLayer(Layer):
    """A layer whose kernels and biases have the options of Keras's layers.

    Args:
        kernel_initializer: initializer of the kernels: a Keras initializer, its name or a function.
        bias_initializer: initializer of the biases.
        kernel_regularizer: regularizer of the kernels, which Keras's `fit` adds to the loss; None means none.
        bias_regularizer: regularizer of the biases.
        kernel_constraint: constraint on the kernels, which Keras's optimizers apply after each update; None means none.
        bias_constraint: constraint on the biases.
        kwargs: arguments of `keras.layers.Layer`.
    """

    def __init__(
        self,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.kernel_initializer = weight_option("kernel_initializer", kernel_initializer)
        self.bias_initializer = weight_option("bias_initializer", bias_initializer)
        self.kernel_regularizer = weight_option("kernel_regularizer", kernel_regularizer)
        self.bias_regularizer = weight_option("bias_regularizer", bias_regularizer)
        self.kernel_constraint = weight_option("kernel_constraint", kernel_constraint)
        self.bias_constraint = weight_option("bias_constraint", bias_constraint)

    @property
    def weight_options(self) -> dict[str, Any]:
        """The options by name, as arguments for a layer within this one."""
        return {name: getattr(self, name) for name in _OPTIONS}

    def add_kernel(self, name: str, shape: tuple[int, ...], initializer: Any = None) -> Any:
        """Adds a kernel of that name and shape; `initializer` replaces the layer's own."""
        return self.add_weight(shape=shape, name=name, **options_for(self, "kernel", initializer))

    def add_bias(self, name: str, shape: tuple[int, ...]) -> Any:
        """Adds a bias of that name and shape."""
        return self.add_weight(shape=shape, name=name, **options_for(self, "bias"))


class TableLayer(Layer):
    """A layer with a table of embeddings, which has the options of Keras's `Embedding`.

    Args:
        initial_stddev: standard deviation of the initial normal distribution; None means 1 / sqrt(d_model), as in T2T.
        embeddings_initializer: initializer of the table: a Keras initializer, its name or a function; None means the
            normal distribution.
        embeddings_regularizer: regularizer of the table, which Keras's `fit` adds to the loss; None means none.
        embeddings_constraint: constraint on the table, which Keras's optimizers apply after each update; None means
            none.
        kwargs: arguments of `keras.layers.Layer`.
    """

    def __init__(
        self,
        initial_stddev: float | None = None,
        embeddings_initializer: Any = None,
        embeddings_regularizer: Any = None,
        embeddings_constraint: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_arguments(NonNegativeFloat | None, initial_stddev=initial_stddev)
        if initial_stddev is not None and embeddings_initializer is not None:
            raise ValueError(
                "`initial_stddev` must be None with an `embeddings_initializer`, which determines the initial table, "
                f"got {initial_stddev}"
            )
        self.initial_stddev = initial_stddev
        self.embeddings_initializer = weight_option("embeddings_initializer", embeddings_initializer)
        self.embeddings_regularizer = weight_option("embeddings_regularizer", embeddings_regularizer)
        self.embeddings_constraint = weight_option("embeddings_constraint", embeddings_constraint)

    def add_table(self, rows: int, d_model: int, **arguments: Any) -> Any:
        """Adds the table, [rows, d_model]; further arguments are those of `add_weight`."""
        stddev = d_model**-0.5 if self.initial_stddev is None else self.initial_stddev
        normal = keras.initializers.RandomNormal(stddev=stddev) if self.embeddings_initializer is None else None
        options = options_for(self, "embeddings", normal)
        return self.add_weight(shape=(rows, d_model), name="table", **options, **arguments)


class ConfiguredLayer(WeightedLayer):
    """A layer or a stack of Figure 1, configured by a `LayerSettings`.

    Args:
        settings: a `LayerSettings`, or a configuration that inherits its fields; None means its defaults.
        kwargs: individual fields of `LayerSettings`, which override `settings`; the options of `WeightedLayer` for all
            kernels and biases inside; and the arguments of `keras.layers.Layer`.
    """

    def __init__(self, settings: LayerSettings | None = None, **kwargs: Any) -> None:
        changes = {name: kwargs.pop(name) for name in FIELDS & kwargs.keys()}
        super().__init__(**kwargs)
        self.settings = LayerSettings.of(settings, **changes)

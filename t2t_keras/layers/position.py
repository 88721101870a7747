"""Position encodings: sinusoids and a learned table."""

from typing import Any, Literal

import keras
from keras import ops

from t2t_keras import kernels
from t2t_keras.kernels.plain import check_float
from t2t_keras.layers.layer import Layer, input_spec_of
from t2t_keras.layers.weight_options import TableLayer
from t2t_keras.tensor import Tensor
from t2t_keras.values import PositiveInt, check_arguments


def sinusoids(positions: Tensor, d_model: int, layout: str = "interleaved") -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i + 1) = cos(the same) (section 3.5).

    Args:
        positions: int or float32 [length].
        d_model: width, an even number.
        layout: "interleaved" as in the paper, or "halves" as in T2T: first all sines, then all cosines, with
            i / (d_model / 2 - 1) as the exponent.

    Returns:
        float32 [length, d_model].
    """
    half = d_model // 2
    steps = half if layout == "interleaved" else max(half - 1, 1)
    exponents = ops.arange(half, dtype="float32") / steps
    frequencies = ops.exp(exponents * -9.210340371976184)  # -log(10000)
    angles = ops.cast(positions, "float32")[:, None] * frequencies[None, :]  # --> [length, d_model / 2]
    if layout == "halves":
        return ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=-1)  # --> [length, d_model]
    pairs = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)  # --> [length, d_model / 2, 2]
    return ops.reshape(pairs, (-1, d_model))  # --> [length, d_model]


@keras.saving.register_keras_serializable(package="t2t_keras")
class SinusoidalPositions(Layer):
    """Adds sinusoids to embeddings (section 3.5). They are computed in float32, for any length.

    Args:
        layout: "interleaved" as in the paper, or "halves" as in T2T; see `sinusoids`.

    Call arguments:
        inputs: float [batch, length, d_model], where d_model is even.
        start: int32 scalar, the position of the first input.

    Returns:
        float [batch, length, d_model].

    Example:
        >>> np.asarray(SinusoidalPositions()(np.zeros([1, 2, 4], "float32")))[0].round(2)
        array([[0.  , 1.  , 0.  , 1.  ],
               [0.84, 0.54, 0.01, 1.  ]], dtype=float32)
    """

    def __init__(self, layout: Literal["interleaved", "halves"] = "interleaved", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_arguments(Literal["interleaved", "halves"], layout=layout)
        self.layout = layout

    def build(self, input_shape: tuple) -> None:
        if input_shape[-1] is None or input_shape[-1] % 2:
            raise ValueError(f"sinusoidal positions need an even d_model, got inputs of shape {input_shape}")
        self.input_spec = input_spec_of(3, input_shape)

    def call(self, inputs: Tensor, start: Tensor | int = 0) -> Tensor:
        check_float(inputs)
        positions = start + ops.arange(ops.shape(inputs)[1], dtype="int32")  # --> [length]
        signal = sinusoids(positions, inputs.shape[-1], self.layout)  # --> [length, d_model]
        return inputs + ops.cast(signal, inputs.dtype)[None]


@keras.saving.register_keras_serializable(package="t2t_keras")
class LearnedPositions(TableLayer):
    """Adds a learned vector for each position (Table 3, row E; Gehring et al., 2017).

    Args:
        max_positions: number of rows of the table; later positions use the last row.
        kwargs: the options of the table, such as `embeddings_initializer`, as in `TableLayer`; and the arguments of
            `keras.layers.Layer`.

    Call arguments:
        inputs: float [batch, length, d_model].
        start: int32 scalar, the position of the first input.

    Returns:
        float [batch, length, d_model].
    """

    def __init__(self, max_positions: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_arguments(PositiveInt, max_positions=max_positions)
        self.max_positions = max_positions

    def build(self, input_shape: tuple) -> None:
        self.input_spec = input_spec_of(3, input_shape)
        self.table = self.add_table(self.max_positions, input_shape[-1])

    def call(self, inputs: Tensor, start: Tensor | int = 0) -> Tensor:
        check_float(inputs)
        positions = ops.minimum(start + ops.arange(ops.shape(inputs)[1], dtype="int32"), self.max_positions - 1)
        vectors = kernels.embedding_lookup(self.table, positions)  # --> [length, d_model]
        return inputs + vectors[None]

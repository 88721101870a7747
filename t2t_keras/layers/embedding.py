"""Token embeddings and the pre-softmax projection that shares their matrix."""

from typing import Any

import keras
from keras import ops

from t2t_keras import kernels
from t2t_keras.kernels.plain import check_float
from t2t_keras.layers.weight_options import TableLayer
from t2t_keras.tensor import Tensor
from t2t_keras.values import NonNegativeFloat, PositiveInt, check_arguments


@keras.saving.register_keras_serializable(package="t2t_keras")
class TiedEmbedding(TableLayer):
    """One matrix that embeds tokens and, transposed, projects hidden states to logits (section 3.4).

    Id 0, which is padding and the start symbol, is embedded as zeros, as in T2T. So are negative ids, which stand for
    tokens that are cut off (`layers.dropout.token_cutoff`).

    Args:
        vocab_size: number of rows of the matrix.
        d_model: width of the embeddings.
        use_bias: whether the logits have a bias.
        scale: factor on the embeddings; None means sqrt(d_model), as in the paper.
        kwargs: the options of the matrix, such as `embeddings_initializer`, as in `TableLayer`; and the arguments of
            `keras.layers.Layer`.

    Call arguments:
        inputs: token ids, int [...], below vocab_size; or hidden states, float [..., d_model], if `reverse`.
        reverse: whether to project hidden states to logits instead of embedding tokens.

    Returns:
        float [..., d_model] in the compute dtype; or logits, float32 [..., vocab], if `reverse`.

    Reference: Press and Wolf, "Using the Output Embedding to Improve Language Models", 2017.

    Example:
        >>> embedding = TiedEmbedding(vocab_size=100, d_model=8)
        >>> states = embedding(np.array([[3, 4, 1]]))
        >>> states.shape, embedding.logits(states).shape
        (TensorShape([1, 3, 8]), TensorShape([1, 3, 100]))
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        use_bias: bool = False,
        scale: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_arguments(PositiveInt, vocab_size=vocab_size, d_model=d_model)
        check_arguments(bool, use_bias=use_bias)
        check_arguments(NonNegativeFloat | None, scale=scale)
        self.vocab_size = vocab_size
        self.d_model = d_model
        self.use_bias = use_bias
        self.scale = scale
        self.bias = None  # of the logits
        self.autocast = False  # otherwise Keras would round ids that are passed as floats

    def build(self, input_shape: tuple | None = None) -> None:
        # Without autocast, rows are cast, not the whole matrix.
        self.table = self.add_table(self.vocab_size, self.d_model, autocast=False)
        if self.use_bias:
            self.bias = self.add_weight(shape=(self.vocab_size,), initializer="zeros", name="bias", autocast=False)

    def call(self, inputs: Tensor, reverse: bool = False) -> Tensor:
        if reverse:
            check_float(inputs)
            # Logits are always float32, because the loss and the search take their softmax.
            logits = ops.cast(ops.matmul(inputs, self.output_matrix(inputs.dtype)), "float32")
            return logits if self.bias is None else logits + ops.cast(self.bias, "float32")
        # Narrower integers are valid ids too, and Keras builds loaded models with float placeholders.
        is_index = keras.backend.standardize_dtype(inputs.dtype) in ("int32", "int64")
        token_ids = inputs if is_index else ops.cast(inputs, "int32")
        vectors = kernels.embedding_lookup(self.table, ops.maximum(token_ids, 0))
        vectors = ops.cast(vectors, self.compute_dtype)  # --> [..., d_model]
        scale = self.d_model**0.5 if self.scale is None else self.scale
        scales = scale * ops.cast(ops.greater(token_ids, 0), vectors.dtype)
        return vectors * ops.expand_dims(scales, -1)

    def logits(self, states: Tensor) -> Tensor:
        """Projects hidden states to logits: float [..., d_model] --> float32 [..., vocab]."""
        return self(states, reverse=True)

    def output_matrix(self, dtype: str) -> Tensor:
        """The matrix that projects hidden states to logits: [d_model, vocab] in the given dtype."""
        return ops.transpose(ops.cast(self.table, dtype))

    def compute_output_shape(self, input_shape: tuple, reverse: bool = False) -> tuple:
        return (*input_shape[:-1], self.vocab_size) if reverse else (*input_shape, self.d_model)

    def compute_output_spec(self, inputs: Tensor, reverse: bool = False) -> keras.KerasTensor:
        dtype = "float32" if reverse else self.compute_dtype
        return keras.KerasTensor(self.compute_output_shape(tuple(inputs.shape), reverse), dtype)

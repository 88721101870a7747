"""The network of `conv_s2s` in plain keras.layers, which an engine of `train_step.py` trains."""

from typing import Any

import keras
from keras import layers, ops


def normalised(base: type) -> type:
    """Returns a Keras layer with weight normalisation: its kernel is a direction times a length."""

    class Normalised(base):
        def build(self, input_shape: tuple) -> None:
            super().build(input_shape)
            self.length = self.add_weight(shape=(self.kernel.shape[-1],), initializer="ones", name="length")
            self.length.assign(self.norms())

        def norms(self) -> Any:
            kernel = super().kernel
            return ops.sqrt(ops.sum(ops.square(kernel), axis=tuple(range(len(kernel.shape) - 1))))

        @property
        def kernel(self) -> Any:
            kernel = super().kernel
            return kernel * (self.length / self.norms()) if hasattr(self, "length") else kernel

    return Normalised


Linear, Convolution = normalised(layers.Dense), normalised(layers.Conv1D)
ROOT_HALF = 0.5**0.5


def blocks(text: str) -> list[tuple[int, int]]:
    """Returns the widths and kernel sizes of a setting such as 4x256x3,2x512x1."""
    sizes = []
    for part in text.split(","):
        number, width, kernel_size = map(int, part.split("x"))
        sizes += [(width, kernel_size)] * number
    return sizes


class Stack(layers.Layer):
    """The blocks of the encoder or the decoder, between two linear layers."""

    def __init__(self, settings: str, d_model: int, d_out: int, rate: float, attends: bool) -> None:
        super().__init__()
        self.attends, sizes = attends, blocks(settings)
        self.first, self.last = Linear(sizes[0][0]), Linear(d_out)
        self.dropouts = [layers.Dropout(rate) for _ in sizes]
        padding = "causal" if attends else "same"
        self.convolutions = [Convolution(2 * width, size, padding=padding) for width, size in sizes]
        before = [sizes[0], *sizes]
        self.projections = [
            Linear(width) if width != d_in else None for (d_in, _), (width, _) in zip(before, sizes, strict=False)
        ]
        self.queries = [Linear(d_model) for _ in sizes] if attends else []
        self.outputs = [Linear(width) for width, _ in sizes] if attends else []
        self.attentions = [layers.Attention() for _ in sizes] if attends else []

    def call(self, embedded: Any, mask: Any, keys: Any = None, values: Any = None) -> Any:
        """Computes the outputs; `mask` is the mask of the source, bool [batch, source_len]."""
        x = self.first(embedded)
        for number, convolution in enumerate(self.convolutions):
            projection = self.projections[number]
            residual = x if projection is None else projection(x)
            x = self.dropouts[number](x)
            if not self.attends:
                x = x * ops.cast(mask, x.dtype)[..., None]
            x, gate = ops.split(convolution(x), 2, axis=-1)
            x = x * ops.sigmoid(gate)
            if self.attends:
                query = (self.queries[number](x) + embedded) * ROOT_HALF
                context = self.attentions[number]([query, values, keys], mask=[None, mask])
                x = (self.outputs[number](context) + x) * ROOT_HALF
            x = (x + residual) * ROOT_HALF
        return self.last(x)


class Network(keras.Model):
    """Computes logits from (source, shifted target), int [batch, length] each."""

    def __init__(self, sizes: dict) -> None:
        super().__init__()
        d_model, rate, normal = sizes["d_model"], sizes["dropout_rate"], keras.initializers.RandomNormal(stddev=0.1)
        d_output = sizes["d_output"] or d_model
        self.tied = sizes["tie_embeddings"]
        self.source = layers.Embedding(sizes["vocab_size"], d_model, normal)
        self.target = self.source if self.tied else layers.Embedding(sizes["vocab_size"], d_model, normal)
        self.places = [layers.Embedding(sizes["max_positions"], d_model, normal) for _ in range(2)]
        self.encoder = Stack(sizes["encoder_layers"], d_model, d_model, rate, attends=False)
        self.decoder = Stack(sizes["decoder_layers"], d_model, d_output, rate, attends=True)
        self.gradient_scale = 1 / (2 * len(blocks(sizes["decoder_layers"])))
        self.dropouts = [layers.Dropout(rate) for _ in range(3)]
        if self.tied:
            self.bias = self.add_weight(shape=(sizes["vocab_size"],), initializer="zeros", name="bias")
        else:
            self.output_linear = layers.Dense(sizes["vocab_size"])

    def call(self, inputs: tuple) -> Any:
        source, target = inputs
        mask = ops.not_equal(source, 0)
        embedded = self.embedded(source, self.source, 0)
        z = self.encoder(embedded, mask)
        z = ops.stop_gradient(z) + (z - ops.stop_gradient(z)) * self.gradient_scale
        tokens = ops.cast(ops.sum(ops.cast(mask, "int32"), axis=1), z.dtype)[:, None, None]
        values = (z + embedded) * (ROOT_HALF * ops.sqrt(tokens))
        hidden = self.dropouts[2](self.decoder(self.embedded(target, self.target, 1), mask, z, values))
        if self.tied:
            return ops.matmul(hidden, ops.transpose(self.target.embeddings)) + self.bias
        return self.output_linear(hidden)

    def embedded(self, ids: Any, table: layers.Embedding, side: int) -> Any:
        vectors = table(ids) * ops.cast(ops.not_equal(ids, 0), "float32")[..., None]
        return self.dropouts[side](vectors + self.places[side](ops.arange(ops.shape(ids)[1])))

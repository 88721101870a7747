"""The network of `rnn_attention` with GNMT's connections in plain keras.layers, for an engine of `train_step.py`."""

from typing import Any

import keras
from keras import layers, ops


class AttentionCell(layers.Layer):
    """A cell of `keras.layers.RNN`: an LSTMCell that also reads the context of its last hidden state.

    Set `memory`, float [batch, source_len, width], and `bias` [batch, 1, source_len, 1] before a sequence. Outputs are
    concatenations of hidden states and contexts.
    """

    def __init__(self, units: int, d_attention: int, memory_width: int) -> None:
        super().__init__()
        self.cell = layers.LSTMCell(units)
        self.query, self.key = layers.Dense(d_attention, use_bias=False), layers.Dense(d_attention)
        self.score = layers.Dense(1, use_bias=False)
        self.state_size, self.output_size = [units, units], units + memory_width
        self.memory = self.keys = self.bias = None

    def begin(self, memory: Any, bias: Any) -> None:
        self.memory, self.keys, self.bias = memory, self.key(memory), bias

    def call(self, inputs: Any, states: list, training: bool = False) -> tuple:
        hidden = ops.tanh(self.query(states[0])[:, None] + self.keys)  # --> [batch, source_len, d_attention]
        weights = ops.softmax(self.score(hidden) + self.bias, axis=1)  # --> [batch, source_len, 1]
        context = ops.sum(weights * self.memory, axis=1)  # --> [batch, memory_width]
        outputs, states = self.cell(ops.concatenate([inputs, context], axis=-1), states)
        return ops.concatenate([outputs, context], axis=-1), states


class Network(keras.Model):
    """Computes logits from (source, shifted target), int [batch, length] each."""

    def __init__(self, sizes: dict) -> None:
        super().__init__()
        units, d_model, vocab_size = sizes["num_units"], sizes["d_model"], sizes["vocab_size"]
        if (sizes["encoder"], sizes["connections"], sizes["d_memory"]) != ("bidirectional_first", "residual", None):
            raise ValueError("this network has GNMT's encoder and connections")
        if sizes["num_encoder_layers"] < 2:
            raise ValueError("this network has at least two layers in the encoder")
        self.first_residual, self.tied = sizes["first_residual"], sizes["tie_embeddings"]
        normal = keras.initializers.RandomNormal(stddev=d_model**-0.5)
        self.target = layers.Embedding(vocab_size, d_model, normal)
        self.source = self.target if self.tied else layers.Embedding(vocab_size, d_model, normal)
        lstm = {"units": units, "return_sequences": True}
        self.both = layers.Bidirectional(layers.LSTM(**lstm))
        self.encoder = [layers.LSTM(**lstm) for _ in range(sizes["num_encoder_layers"] - 1)]
        self.cell = AttentionCell(units, sizes["d_attention"], units)
        self.bottom = layers.RNN(self.cell, return_sequences=True)
        self.decoder = [layers.LSTM(**lstm) for _ in range(sizes["num_decoder_layers"] - 1)]
        self.readout = layers.Dense(d_model, use_bias=False) if units != d_model else None
        layers_with_dropout = sizes["num_encoder_layers"] + sizes["num_decoder_layers"] + 1  # and the projection
        self.dropouts = [layers.Dropout(sizes["dropout_rate"]) for _ in range(layers_with_dropout)]
        if self.tied:
            self.bias = self.add_weight(shape=(vocab_size,), initializer="zeros", name="bias")
        else:
            self.output_linear = layers.Dense(vocab_size)

    def call(self, inputs: tuple) -> Any:
        source, target = inputs
        mask, dropouts = ops.not_equal(source, 0), iter(self.dropouts)
        x = self.both(next(dropouts)(self.embedded(source, self.source)), mask=mask)
        for number, layer in enumerate(self.encoder, start=2):
            x = self.added(number, x, layer(next(dropouts)(x), mask=mask))
        self.cell.begin(x, ops.where(mask, 0.0, -1e9)[..., None])
        x = self.bottom(next(dropouts)(self.embedded(target, self.target)))
        x, context = ops.split(x, 2, axis=-1)
        for number, layer in enumerate(self.decoder, start=2):
            x = self.added(number, x, layer(ops.concatenate([next(dropouts)(x), context], axis=-1)))
        x = next(dropouts)(x)
        hidden = x if self.readout is None else self.readout(x)
        if self.tied:
            return ops.matmul(hidden, ops.transpose(self.target.embeddings)) + self.bias
        return self.output_linear(hidden)

    def embedded(self, ids: Any, table: layers.Embedding) -> Any:
        """Returns embeddings times sqrt(d_model), and zeros for id 0."""
        return table(ids) * (ops.cast(ops.not_equal(ids, 0), "float32") * table.output_dim**0.5)[..., None]

    def added(self, number: int, inputs: Any, outputs: Any) -> Any:
        return inputs + outputs if number >= self.first_residual else outputs

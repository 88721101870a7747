"""The decoder at one position as a TensorFlow Lite model."""

import contextlib
import io
import os
from typing import Any

import tensorflow as tf

from t2t_keras.layers import kernels

Tensor = Any

# Inputs and outputs are named after what they hold; of a layer's, its number follows.
KEYS, VALUES, MEMORY_KEYS, MEMORY_VALUES = "keys_", "values_", "memory_keys_", "memory_values_"
RESULTS = ("logits", "attention", "probabilities")


class StepGraph(tf.Module):
    """One position of every hypothesis, beside a cache that is kept elsewhere.

    Inputs, all float32, of any number of sentences: "inputs" [batch * beam, d_model], embedded tokens with
    positions; "bias" [batch, 1, beam, room], which hides what of the cache is not filled or not a hypothesis' own;
    "memory_bias" [batch, 1, 1, source_len]; and of every layer "keys_I" and "values_I" [batch, heads, room, d_head],
    "memory_keys_I" and "memory_values_I" [batch, heads, source_len, d_head].

    Outputs: "logits" [batch * beam, vocab]; "attention" [batch, beam, source_len], the last layer's to the
    source, mean over its heads; of every layer the new "keys_I" and "values_I" [batch, heads, beam, d_head]; and with a beam
    of one "probabilities" [batch, vocab].

    Args:
        model: a `Transformer` that computes in float32.
        beam_size: hypotheses a sentence.
    """

    def __init__(self, model: Any, beam_size: int) -> None:
        super().__init__()
        self._model = model
        self._beam_size = beam_size

    def converted(self, int8: bool) -> bytes:
        """The graph in TensorFlow Lite's format, with the weights as they are now.

        Args:
            int8: whether the products' weights are rounded to 8 bits, a scale for each output; what they are multiplied with
                is rounded at each step, a scale for each row.
        """
        graph = tf.function(self._step, autograph=False).get_concrete_function(**self._signature())
        converter = tf.lite.TFLiteConverter.from_concrete_functions([graph])
        if int8:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        with contextlib.redirect_stderr(io.StringIO()):
            return converter.convert()

    def _signature(self) -> dict[str, tf.TensorSpec]:
        width, beam = self._model.config.d_model, self._beam_size
        shapes: dict[str, list[int | None]] = {
            "inputs": [None, width],
            "bias": [None, 1, beam, None],
            "memory_bias": [None, 1, 1, None],
        }
        for index, layer in enumerate(self._model.decoder.layers):
            attention = layer.self_attention
            for names, d_head in (((KEYS, MEMORY_KEYS), attention.d_key), ((VALUES, MEMORY_VALUES), attention.d_value)):
                shapes.update({f"{name}{index}": [None, attention.num_heads, None, d_head] for name in names})
        return {name: tf.TensorSpec(shape, tf.float32, name) for name, shape in shapes.items()}

    def _step(self, **given: Tensor) -> dict[str, Tensor]:
        decoder, x, outputs = self._model.decoder, given["inputs"], {}
        for index, layer in enumerate(decoder.layers):
            x, attention, written = self._layer(layer, x, given, str(index))
            outputs.update(written)
        x = x if decoder.final_norm is None else decoder.final_norm(x)
        outputs["attention"] = tf.reduce_mean(attention, axis=1)  # --> [batch, beam, source_len]
        outputs["logits"] = kernels.linear(x, self._model.output_embedding.output_matrix("float32"), None)
        if self._beam_size == 1:
            outputs["probabilities"] = tf.nn.softmax(outputs["logits"])
        return outputs

    def _layer(self, layer: Any, x: Tensor, given: dict[str, Tensor], index: str) -> tuple[Tensor, Tensor, dict]:
        """`DecoderLayer.step` beside the cache: its result, its attention to the source, its keys and values."""
        past = {"keys": given[KEYS + index], "values": given[VALUES + index]}
        memory = {"keys": given[MEMORY_KEYS + index], "values": given[MEMORY_VALUES + index]}
        written: dict[str, Tensor] = {}
        weights: list[Tensor] = []

        def self_attention(x: Tensor) -> Tensor:
            projections = layer.self_attention.step_projections("float32")
            attended, now = layer.self_attention.step_beside(x, past, given["bias"], projections, self._beam_size)
            written.update({KEYS + index: now["keys"], VALUES + index: now["values"]})
            return attended

        def cross_attention(x: Tensor) -> Tensor:
            attention, bias = layer.cross_attention, given["memory_bias"]
            projections = attention.step_projections("float32")
            weights.append(attention.step_weights(x, memory, bias, projections, self._beam_size))
            return attention.step_to_memory(x, memory, bias, projections, self._beam_size)

        def feed_forward(x: Tensor) -> Tensor:
            return layer.feed_forward.step(x, layer.feed_forward.step_projections("float32"))

        x = layer.self_attention_residual(x, sublayer=self_attention, training=False)
        x = layer.cross_attention_residual(x, sublayer=cross_attention, training=False)
        return layer.feed_forward_residual(x, sublayer=feed_forward, training=False), weights[0], written

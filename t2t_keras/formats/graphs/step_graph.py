"""The decoder at one position as a TensorFlow Lite model."""

from typing import Any

import tensorflow as tf

from t2t_keras import kernels
from t2t_keras.formats.graphs.names import KEYS, MEMORY_KEYS, MEMORY_VALUES, VALUES
from t2t_keras.layers.stepping import DecoderStep, KeysAndValues
from t2t_keras.models.contract import AttentionStacks

Tensor = Any


class StepGraph:
    """One position of every hypothesis of a float32 model, with a cache that is kept outside the graph.

    Inputs, all float32, of any number of sentences: "inputs" [batch * beam, d_model], embedded tokens with positions;
    "bias" [batch, 1, beam, room], which masks empty cache entries and those of other hypotheses; "memory_bias" [batch,
    1, 1, source_len]; and of every layer I "keys_I" and "values_I" [batch, heads, room, d_head], "memory_keys_I" and
    "memory_values_I" [batch, heads, source_len, d_head].

    Outputs: "logits" [batch * beam, vocab]; "attention" [batch, beam, source_len], the last layer's attention to the
    source, averaged over heads; of every layer the new "keys_I" and "values_I" [batch, heads, beam, d_head]; and if
    enabled "log_totals" [batch * beam], the log-sum-exp of the logits.
    """

    def __init__(self, model: AttentionStacks, beam_size: int, log_totals: bool) -> None:
        self._model = model
        self._beam_size = beam_size
        self._log_totals = log_totals

    def function(self) -> tf.types.experimental.PolymorphicFunction:
        """The graph, to be converted."""
        signature = self.signature()

        def step(*tensors: Tensor) -> dict[str, Tensor]:
            return self.outputs(dict(zip(signature, tensors, strict=True)))

        return tf.function(step, input_signature=list(signature.values()), autograph=False)

    def signature(self) -> dict[str, tf.TensorSpec]:
        """The inputs by name."""
        shapes: dict[str, list[int | None]] = {
            "inputs": [None, self._model.config.d_model],
            "bias": [None, 1, self._beam_size, None],
            "memory_bias": [None, 1, 1, None],
        }
        for index, layer in enumerate(self._model.decoder.layers):
            attention = layer.self_attention
            for names, d_head in (((KEYS, MEMORY_KEYS), attention.d_key), ((VALUES, MEMORY_VALUES), attention.d_value)):
                shapes.update({f"{name}{index}": [None, attention.num_heads, None, d_head] for name in names})
        return {name: tf.TensorSpec(shape, tf.float32, name) for name, shape in shapes.items()}

    def outputs(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """The outputs by name, of the inputs by name."""
        head = self._model.output_head
        step, x = DecoderStep(self._model.decoder, "float32", self._beam_size), tensors["inputs"]
        outputs: dict[str, Tensor] = {}
        for index, layer in enumerate(step.layers):
            past = KeysAndValues(tensors[f"{KEYS}{index}"], tensors[f"{VALUES}{index}"])
            memory = KeysAndValues(tensors[f"{MEMORY_KEYS}{index}"], tensors[f"{MEMORY_VALUES}{index}"])
            x, written, attention = layer(x, past, tensors["bias"], memory, tensors["memory_bias"], beside=True)
            outputs |= {f"{KEYS}{index}": written.keys, f"{VALUES}{index}": written.values}
        x = self._model.decoder.normalised(x)
        outputs["attention"] = tf.reduce_mean(attention, axis=1)  # --> [batch, beam, source_len]
        outputs["logits"] = kernels.linear(x, head.output_matrix("float32"), head.bias)
        if self._log_totals:
            largest = tf.reduce_max(outputs["logits"], axis=1)  # --> [batch * beam]
            rest = tf.exp(outputs["logits"] - largest[:, tf.newaxis])
            outputs["log_totals"] = largest + tf.math.log(tf.reduce_sum(rest, axis=1))
        return outputs

"""SentencePiece's tokenizer for the graph, freed with the model that it was loaded with."""

from typing import Any

import tensorflow as tf
import tensorflow_text


def graph_sentencepiece(serialized: bytes, name: str | None) -> Any:
    """A `tensorflow_text.SentencepieceTokenizer` of a model's bytes.

    TensorFlow Text leaves a loaded vocabulary (1.5 MB with 8,000 entries) in memory until the program ends; a server
    that loads one version after another would grow with each.
    """
    tokenizer = tensorflow_text.SentencepieceTokenizer(model=serialized, name=name)
    kind: Any = type(tokenizer._model_resource)

    class Freed(kind):
        def _destroy_resource(self) -> None:
            tf.raw_ops.DestroyResourceOp(resource=self.resource_handle)

    tokenizer._model_resource.__class__ = Freed
    return tokenizer

"""What the families of this project share: embeddings, logits, and how Keras stores a model."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, Self

import keras
from keras import ops

from t2t_keras import kernels
from t2t_keras.config import ModelConfig
from t2t_keras.errors import InputError
from t2t_keras.layers import TiedEmbedding
from t2t_keras.layers.attention.scores import mask_bias
from t2t_keras.models import presets
from t2t_keras.models.contract import BFLOAT16, States
from t2t_keras.symbols import PAD_ID
from t2t_keras.tensor import Tensor


class EncoderDecoder(keras.Model):
    """The base of a family: a subclass names its `config_class` and implements `states`, `encode` and `begin`.

    Works with Keras's `compile` and `fit`: `fit({"source": s, "target": t}, t)` with
    `t2t_keras.losses.SmoothedCrossEntropy`. Targets are shifted right inside, so the logits at a position predict the
    target there.

    Args:
        config: sizes and choices.
        output_bias: whether logits have a bias.

    Call arguments:
        inputs: "source", int [batch, source_len], and "target", int [batch, target_len], both padded with 0 at the end.
        seed: int32 [2], for all dropout inside; None draws seeds.
        training: whether dropout is active.

    Returns:
        Logits, float32 [batch, target_len, vocab].
    """

    config_class: ClassVar[type[ModelConfig]]
    states: Callable[..., States]  # `ScoringModel.states`

    def __init__(self, config: Any, *, output_bias: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.config = config
        tied = config.tie_embeddings
        self.target_embedding = self.make_embedding("target_embedding", use_bias=tied and output_bias)
        self.source_embedding = self.output_embedding = self.target_embedding
        if not tied or config.source_vocab_size is not None:
            self.source_embedding = self.make_embedding("source_embedding")
        if not tied:
            self.output_embedding = self.make_embedding("output_embedding", use_bias=output_bias)

    def make_embedding(self, name: str, *, use_bias: bool = False) -> TiedEmbedding:
        """Makes the layer of one matrix: "target_embedding", "source_embedding" or "output_embedding"."""
        sizes = (self.entries_of(name), self.config.d_model)
        return TiedEmbedding(*sizes, use_bias=use_bias, name=name, dtype=self.dtype_policy)

    def entries_of(self, name: str) -> int:
        """The number of rows of a matrix of `make_embedding`."""
        return self.config.source_entries if name == "source_embedding" else self.config.vocab_size

    @classmethod
    def from_preset(cls, name: str, **changes: Any) -> Self:
        """A freshly initialised model of a preset such as "base"; `changes` are other fields, such as vocab_size=8000.

        Raises:
            InputError: an unknown name (lists the known ones), or a preset of another family.
        """
        config = presets.preset(name).model
        if type(config) is not cls.config_class:
            raise InputError(f"the preset {name!r} is of the family {config.family}, not {cls.config_class.family}")
        return cls(dataclasses.replace(config, **changes))

    def build(self, input_shape: Any = None) -> None:
        for embedding in (self.target_embedding, self.source_embedding, self.output_embedding):
            if not embedding.built:
                embedding.build()

    def call(self, inputs: dict[str, Tensor], seed: Tensor | None = None, training: bool | None = None) -> Tensor:
        states = self.states(inputs, seed=seed, training=training)
        if training:  # for Keras's `fit`: over tokens, like `SmoothedCrossEntropy`
            tokens = ops.sum(ops.cast(ops.not_equal(inputs["target"], PAD_ID), "float32"))
            self.add_loss(ops.cast(states.auxiliary_loss, "float32") / ops.maximum(tokens, 1.0))
        return self.logits(states.hidden)

    @property
    def output_head(self) -> TiedEmbedding:
        """The projection to the vocabulary."""
        return self.output_embedding

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits of hidden states: float [..., width] --> float32 [..., vocab]."""
        return self.output_head.logits(hidden)

    def step_products(self, wanted: frozenset[str]) -> tuple[str, Callable[[Tensor], Tensor]]:
        """The dtype of the products in the steps of a search, and `logits` with its matrix made ready in that dtype."""
        dtype = BFLOAT16 if BFLOAT16 in wanted else self.compute_dtype
        matrix = self.output_head.output_matrix(dtype)  # --> [width, vocab]

        def logits(hidden: Tensor) -> Tensor:
            return ops.cast(kernels.linear(hidden, matrix, self.output_head.bias), "float32")

        return dtype, logits

    def source_bias(self, source: Tensor) -> Tensor:
        """The `mask_bias` of a source, int [batch, source_len]: [batch, 1, source_len]."""
        return mask_bias(ops.not_equal(source, PAD_ID)[:, None], self.compute_dtype)

    def embedded_targets(self, target: Tensor) -> Tensor:
        """Targets, shifted right and embedded: int [batch, target_len] --> float [batch, target_len, d_model]."""
        return self.target_embedding(ops.pad(target, ((0, 0), (1, 0)))[:, :-1])  # the start symbol is id 0

    def compute_output_shape(self, input_shape: dict[str, tuple]) -> tuple:
        return (*input_shape["target"], self.config.vocab_size)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "config": dataclasses.asdict(self.config)}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Self:
        return cls(**{**config, "config": cls.config_class(**config["config"])})

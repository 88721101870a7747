"""The settings of a network."""

import dataclasses
from typing import Literal

from t2t_keras.config.checks import check_positive, check_rate
from t2t_keras.errors import InputError


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The network (section 3 of the paper); the defaults are the paper's base model.

    Attributes:
        vocab_size: entries of the shared vocabulary, special symbols included.
        num_encoder_layers: N of the encoder.
        num_decoder_layers: N of the decoder.
        d_model: width of the embeddings and of every sub-layer's output.
        d_ff: inner width of the feed-forward sub-layers.
        num_heads: h, attention heads.
        d_key: width of a head's queries and keys; None means d_model / num_heads.
        d_value: width of a head's values; None means d_model / num_heads.
        dropout_rate: dropout on each sub-layer's output and on the embedding sums (5.4).
        attention_dropout_rate: dropout on the attention weights (T2T; the paper has none).
        relu_dropout_rate: dropout inside the feed-forward sub-layers (T2T; the paper has none).
        norm_position: "post": LayerNorm(x + Sublayer(x)), the paper; "pre": x + Sublayer(LayerNorm(x)), T2T.
        position_encoding: "sinusoidal" (interleaved, 3.5), "sinusoidal_halves" (T2T), "learned" (Table 3, E).
        max_positions: rows of the learned position table; sinusoids have no limit.
        tie_embeddings: one matrix for source, target and the pre-softmax projection (3.4).
        use_attention_bias: whether the attention projections have biases.
        layer_norm_epsilon: added to the variance in layer normalisation.
    """

    vocab_size: int = 37000
    num_encoder_layers: int = 6
    num_decoder_layers: int = 6
    d_model: int = 512
    d_ff: int = 2048
    num_heads: int = 8
    d_key: int | None = None
    d_value: int | None = None
    dropout_rate: float = 0.1
    attention_dropout_rate: float = 0.0
    relu_dropout_rate: float = 0.0
    norm_position: Literal["post", "pre"] = "post"
    position_encoding: Literal["sinusoidal", "sinusoidal_halves", "learned"] = "sinusoidal"
    max_positions: int = 1024
    tie_embeddings: bool = True
    use_attention_bias: bool = True
    layer_norm_epsilon: float = 1e-6

    def __post_init__(self) -> None:
        check_positive(
            self,
            "vocab_size",
            "num_encoder_layers",
            "num_decoder_layers",
            "d_model",
            "d_ff",
            "num_heads",
            "d_key",
            "d_value",
            "max_positions",
            "layer_norm_epsilon",
        )
        check_rate(self, "dropout_rate", "attention_dropout_rate", "relu_dropout_rate")
        if self.d_model % 2:
            raise InputError(f"model.d_model must be even (sine and cosine pairs), got {self.d_model}")
        if (self.d_key is None or self.d_value is None) and self.d_model % self.num_heads:
            raise InputError(
                f"model.num_heads={self.num_heads} does not divide model.d_model={self.d_model}; "
                "set model.d_key and model.d_value"
            )

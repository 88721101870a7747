"""Settings shared by the layers of a stack."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal


@dataclasses.dataclass(frozen=True)
class LayerSettings:
    """Sizes and choices of an `EncoderLayer` or a `DecoderLayer`.

    Attributes:
        num_heads, d_key, d_value, attention_dropout_rate, use_attention_bias, attention_score: of each
            `MultiHeadAttention`; there without "attention".
        query_key_initializer: likewise.
        attention_window: positions that self-attention reaches on either side, the decoder's only before; None or 0
            means all.
        d_ff, relu_dropout_rate, activation: of the `FeedForward`; there the rate is `dropout_rate`.
        num_experts, experts_per_token, d_expert, gate_noise, balance_weight: of the `MixtureOfExperts` in place of the
            feed-forward network; without experts there is a `FeedForward`, and a d_expert of None means d_ff.
        norm_position, dropout_rate, layer_norm_epsilon: of each `Residual`; there the last one is `epsilon`.
    """

    num_heads: int
    d_key: int
    d_ff: int
    d_value: int | None = None
    dropout_rate: float = 0.0
    attention_dropout_rate: float = 0.0
    relu_dropout_rate: float = 0.0
    norm_position: Literal["post", "pre"] = "post"
    use_attention_bias: bool = True
    layer_norm_epsilon: float = 1e-6
    num_experts: int = 0
    experts_per_token: int = 4
    d_expert: int | None = None
    gate_noise: bool = True
    balance_weight: float = 0.01
    attention_score: Literal["scaled_dot", "dot", "additive"] = "scaled_dot"
    attention_window: int | None = None
    activation: str = "relu"
    query_key_initializer: str = "glorot_uniform"

    @classmethod
    def of(cls, settings: "LayerSettings | Mapping[str, Any]") -> "LayerSettings":
        """Converts fields by name, as Keras stores them, to settings; returns settings unchanged."""
        return settings if isinstance(settings, LayerSettings) else cls(**settings)

    @property
    def attention(self) -> dict[str, Any]:
        """Arguments of each `MultiHeadAttention`."""
        return {
            "num_heads": self.num_heads,
            "d_key": self.d_key,
            "d_value": self.d_value,
            "dropout_rate": self.attention_dropout_rate,
            "use_bias": self.use_attention_bias,
            "score": self.attention_score,
            "query_key_initializer": self.query_key_initializer,
        }

    def window(self, causal: bool) -> tuple[int, int] | None:
        """The argument `window` of self-attention, with or without the positions after each."""
        reach = self.attention_window
        return (reach, 0 if causal else reach) if reach else None

    @property
    def feed_forward(self) -> dict[str, Any]:
        """Arguments of the `FeedForward`."""
        return {"d_ff": self.d_ff, "dropout_rate": self.relu_dropout_rate, "activation": self.activation}

    @property
    def experts(self) -> dict[str, Any]:
        """Arguments of the `MixtureOfExperts`."""
        return {
            "num_experts": self.num_experts,
            "experts_per_token": self.experts_per_token,
            "d_expert": self.d_expert or self.d_ff,
            "gate_noise": self.gate_noise,
            "balance_weight": self.balance_weight,
            "dropout_rate": self.relu_dropout_rate,
        }

    @property
    def residual(self) -> dict[str, Any]:
        """Arguments of each `Residual`."""
        return {
            "norm_position": self.norm_position,
            "dropout_rate": self.dropout_rate,
            "epsilon": self.layer_norm_epsilon,
        }

"""Settings of an encoder or decoder layer (Figure 1)."""

import dataclasses
from typing import Any, Literal

from t2t_keras.values import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, Rate, check_fields

# Any other activation of `keras.activations` can be added by its name.
Activation = Literal["relu", "swish", "gelu"]
AttentionScore = Literal["scaled_dot", "dot", "additive"]
NormPosition = Literal["post", "pre"]
QueryKeyInitializer = Literal["glorot_uniform", "lecun_uniform"]
# Maximum number of positions in a block of windowed attention, unless the window needs larger blocks. A short sentence
# is a single block. Several blocks have equal sizes of more than half of this: smaller products would waste more time
# than they save.
WINDOW_BLOCK = 64


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerSettings:
    """Sizes and choices of an `EncoderLayer` or a `DecoderLayer`; the defaults are the paper's base model.

    Attributes:
        num_heads: number of attention heads, the paper's h.
        d_key: width of a head's queries and keys; None means d_model / num_heads.
        d_value: width of a head's values; None means d_model / num_heads.
        d_ff: inner width of the feed-forward sub-layer.
        dropout_rate: dropout on each sub-layer's output (section 5.4).
        attention_dropout_rate: dropout on the attention weights (T2T; not used in the paper).
        relu_dropout_rate: dropout inside the feed-forward sub-layer (T2T; not used in the paper).
        norm_position: "post" for LayerNorm(x + Sublayer(x)), as in the paper, or "pre" for x + Sublayer(LayerNorm(x)),
            as in T2T.
        layer_norm_epsilon: added to the variance in layer normalisation.
        use_attention_bias: whether the attention projections have biases.
        attention_score: "scaled_dot" (equation 1), "dot" (not divided by sqrt(d_key)) or "additive" (section 3.2.1).
        attention_window: number of positions that self-attention reaches on either side, or in the decoder only
            backwards (section 4, "restricted"); None or 0 means all positions.
        query_key_initializer: initializer of the query and key kernels: "glorot_uniform", like that of the other
            kernels, or "lecun_uniform", with which queries and keys initially have unit variance, as section 3.2.1
            assumes.
        attention_gain: factor on the initial query, key and value kernels; fairseq uses 1 / sqrt(2).
        activation: activation of the feed-forward sub-layer, as in `FeedForward`: the name of a Keras activation, such
            as "relu" (equation 2), or a function.
        num_experts: number of experts that replace the feed-forward network (Shazeer et al., 2017); 0 means none.
        experts_per_token: number of experts that process each token.
        d_expert: inner width of an expert; None means d_ff.
        gate_noise: whether the choice of experts is noisy in training.
        balance_weight: weight of the losses that encourage balanced use of the experts.
    """

    num_heads: PositiveInt = 8
    d_key: PositiveInt | None = None
    d_value: PositiveInt | None = None
    d_ff: PositiveInt = 2048
    dropout_rate: Rate = 0.1
    attention_dropout_rate: Rate = 0.0
    relu_dropout_rate: Rate = 0.0
    norm_position: NormPosition = "post"
    layer_norm_epsilon: PositiveFloat = 1e-6
    use_attention_bias: bool = True
    attention_score: AttentionScore = "scaled_dot"
    attention_window: NonNegativeInt | None = None
    query_key_initializer: QueryKeyInitializer = "glorot_uniform"
    attention_gain: PositiveFloat = 1.0
    activation: Any = "relu"  # checked by `FeedForward`, because Keras has to resolve it
    num_experts: NonNegativeInt = 0
    experts_per_token: PositiveInt = 4
    d_expert: PositiveInt | None = None
    gate_noise: bool = True
    balance_weight: NonNegativeFloat = 0.01

    def __post_init__(self) -> None:
        check_fields(self, "`{}`")

    @classmethod
    def of(cls, settings: "LayerSettings | None", **changes: Any) -> "LayerSettings":
        """Copies the fields of `settings` with some changes.

        Args:
            settings: layer settings, or a configuration that inherits their fields; None means the defaults.
            changes: values for some of the fields.

        Raises:
            ValueError: `settings` is of a different type, such as a dict.
        """
        if settings is not None and not isinstance(settings, LayerSettings):
            raise ValueError(f"`settings` must be a LayerSettings, got {settings!r}; pass fields as keyword arguments")
        return LayerSettings(**{**({} if settings is None else settings.fields), **changes})

    @property
    def fields(self) -> dict[str, Any]:
        """The settings of a layer by name, without other fields of a configuration that inherits them."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(LayerSettings)}

    @property
    def attention(self) -> dict[str, Any]:
        """Arguments for each `MultiHeadAttention`."""
        initializer = self.query_key_initializer  # None leaves the choice to `kernel_initializer`
        return {
            "num_heads": self.num_heads,
            "d_key": self.d_key,
            "d_value": self.d_value,
            "dropout_rate": self.attention_dropout_rate,
            "use_bias": self.use_attention_bias,
            "score": self.attention_score,
            "query_key_initializer": None if initializer == "glorot_uniform" else initializer,
            "gain": self.attention_gain,
        }

    def window(self, causal: bool) -> tuple[int, int] | None:
        """The `window` argument of self-attention; a causal window excludes later positions."""
        reach = self.attention_window
        return (reach, 0 if causal else reach) if reach else None

    @property
    def feed_forward(self) -> dict[str, Any]:
        """Arguments for `FeedForward`."""
        return {"d_ff": self.d_ff, "dropout_rate": self.relu_dropout_rate, "activation": self.activation}

    @property
    def experts(self) -> dict[str, Any]:
        """Arguments for `MixtureOfExperts`."""
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
        """Arguments for each `Residual`."""
        return {
            "norm_position": self.norm_position,
            "dropout_rate": self.dropout_rate,
            "epsilon": self.layer_norm_epsilon,
        }


FIELDS = frozenset(field.name for field in dataclasses.fields(LayerSettings))

"""Settings of the Transformer, and its size and cost computed from them."""

import dataclasses
import math
from typing import ClassVar, Literal

from t2t_keras.config.layer_settings import WINDOW_BLOCK, Activation, LayerSettings
from t2t_keras.config.model_config import Activations, ModelConfig, register_config
from t2t_keras.errors import InputError
from t2t_keras.values import PositiveInt


@register_config
@dataclasses.dataclass(frozen=True)
class TransformerConfig(LayerSettings, ModelConfig):
    """Settings of the Transformer (section 3 of the paper); the defaults are the paper's base model.

    The settings of its layers are inherited from `LayerSettings`. Their `dropout_rate` also applies to the sums of
    embeddings and positions (section 5.4).

    Attributes:
        activation: activation of the feed-forward sub-layer: "relu" (equation 2), "swish" or "gelu".
        num_encoder_layers: number of encoder layers, the paper's N.
        num_decoder_layers: number of decoder layers, the paper's N.
        position_encoding: "sinusoidal" (interleaved, section 3.5), "sinusoidal_halves" (T2T) or "learned" (row E of
            Table 3).
        max_positions: number of rows of the learned position table; sinusoids have no limit.
        tie_embeddings: whether source, target and the pre-softmax projection share one matrix (section 3.4).
        use_output_bias: whether the logits have a bias.
    """

    family: ClassVar[str] = "transformer"

    activation: Activation = "relu"
    num_encoder_layers: PositiveInt = 6
    num_decoder_layers: PositiveInt = 6
    position_encoding: Literal["sinusoidal", "sinusoidal_halves", "learned"] = "sinusoidal"
    max_positions: PositiveInt = 1024
    tie_embeddings: bool = True
    use_output_bias: bool = False

    def __post_init__(self) -> None:
        ModelConfig.__post_init__(self)  # names the fields as in a configuration, unlike `LayerSettings`
        if self.num_experts and self.experts_per_token > self.num_experts:
            raise InputError(
                f"model.experts_per_token={self.experts_per_token} is more than model.num_experts={self.num_experts}"
            )
        if self.num_experts and self.activation != "relu":
            raise InputError(f"model.activation={self.activation}: experts use relu")
        if self.d_model % 2 and self.position_encoding != "learned":
            raise InputError(f"model.d_model must be even (sine and cosine pairs), got {self.d_model}")
        if (self.d_key is None or self.d_value is None) and self.d_model % self.num_heads:
            raise InputError(
                f"model.num_heads={self.num_heads} does not divide model.d_model={self.d_model}; "
                "set model.d_key and model.d_value"
            )

    def parameter_counts(self) -> dict[str, int]:
        """Numbers of parameters by part: "embedding", "encoder" and "decoder".

        "embedding" includes the token embeddings, the pre-softmax projection and learned positions.
        """
        norm = 2 * self.d_model
        final_norm = norm if self.norm_position == "pre" else 0
        attention = self._attention_matrices() + self._attention_vectors()
        feed_forward = self._feed_forward_parameters()
        encoder_layer = attention + feed_forward + 2 * norm
        decoder_layer = 2 * attention + feed_forward + 3 * norm
        positions = 2 * self.max_positions if self.position_encoding == "learned" else 0
        bias = self.vocab_size if self.use_output_bias else 0
        return {
            "embedding": (self.token_rows(tied=self.tie_embeddings) + positions) * self.d_model + bias,
            "encoder": self.num_encoder_layers * encoder_layer + final_norm,
            "decoder": self.num_decoder_layers * decoder_layer + final_norm,
        }

    def training_flops(self, length: int) -> dict[str, int]:
        """FLOPs by kind, "matrices" and "attention"; see `ModelConfig.training_flops`.

        In "matrices", a token counts only the experts that process it, and the gates.

        In "attention", the products of a query with `length` keys and values take 2 * length * heads * (d_key +
        d_value) FLOPs in the forward pass, and three times as many including the backward pass. This applies to the
        encoder's attention and to both attentions of the decoder. The causal mask saves nothing; within a window only
        the keys in reach count. In an additive score, the product with v costs as much as the product of a query and a
        key, and tanh is not counted.
        """
        attentions, feed_forwards = self._numbers_of_sublayers()
        matrices = attentions * self._attention_matrices() + feed_forwards * self._feed_forward_matrices()
        d_key, d_value = self.head_widths()
        reach = self.attention_window or length
        return {
            "matrices": 6 * (matrices + self.vocab_size * self.d_model),
            "attention": 6 * self._sum_layers(length, 2 * reach + 1, reach + 1) * self.num_heads * (d_key + d_value),
        }

    def hidden_scores(self, length: int) -> int:
        if self.attention_score != "additive":
            return 0
        reach = self.attention_window or length
        return self._sum_layers(length, 2 * reach + 1, reach + 1) * self.num_heads * self.head_widths()[0]

    def kept_activations(self, length: int) -> Activations:
        """Activations kept for the backward pass, including those that XLA recomputes instead.

        Each attention keeps its inputs, queries, keys, values and weights, the outputs of the heads, the dropout mask
        and the inputs of the normalisation. Each feed-forward network keeps the equivalent tensors. With a window, the
        blocks that are computed count.
        """
        attentions, feed_forwards = self._numbers_of_sublayers()
        weight_copies = 3 if self.attention_dropout_rate else 1  # with dropout, also the mask and masked weights
        inner_copies = (3 if self.relu_dropout_rate else 1) + (self.activation != "relu")  # others keep inputs too
        heads = self.num_heads * 2 * sum(self.head_widths())
        block, reach = self._block(length)
        weights = weight_copies * self.num_heads * self._sum_layers(length, block + 2 * reach, block + reach)
        # Each block has copies of its neighbours' keys and values that are within its reach.
        block_copies = (2 * self.num_encoder_layers + self.num_decoder_layers) * reach * heads // (2 * block)
        attention = attentions * (2 * self.d_model + heads) + weights + block_copies
        feed_forward, gates = 2 * self.d_model + inner_copies * self.d_ff, 0
        if self.num_experts:
            # Experts: inputs and outputs in two orders. Gates: noise, deviations and logits, twice for the load.
            expert_elements = 4 * self.d_model + inner_copies * self.expert_width()
            feed_forward, gates = 2 * self.d_model + self.experts_per_token * expert_elements, 8 * self.num_experts
        return Activations(
            computed=attention + feed_forwards * feed_forward + 2 * self.d_model,  # dropout on the embeddings
            float32=(attentions + feed_forwards) * self.d_model + feed_forwards * gates,
        )

    def sizes(self) -> dict[str, str]:
        """The settings of Table 3, others that affect the number of parameters, and deviations from the paper."""
        d_key, d_value = self.head_widths()
        experts = f"{self.experts_per_token} of {self.num_experts} x {self.expert_width():,}"
        paper = {"attention_score": "scaled_dot", "attention_window": 0, "activation": "relu"}  # None counts as 0
        values = {name: getattr(self, name) or 0 for name in paper}
        changes = {name: str(value) for name, value in values.items() if value != paper[name]}
        return {
            "vocab_size": self.entries,
            "layers (encoder + decoder)": f"{self.num_encoder_layers} + {self.num_decoder_layers}",
            "d_model": f"{self.d_model:,}",
            "d_ff": f"{self.d_ff:,}",
            **({"experts per token": experts} if self.num_experts else {}),
            **({"gate_noise": "yes" if self.gate_noise else "no"} if self.num_experts else {}),
            "num_heads": str(self.num_heads),
            "d_key, d_value": f"{d_key}, {d_value}",
            "norm_position": self.norm_position,
            "position_encoding": self.position_encoding,
            **({"max_positions": f"{self.max_positions:,}"} if self.position_encoding == "learned" else {}),
            "embeddings": "tied" if self.tie_embeddings else "separate",
            "attention biases": "yes" if self.use_attention_bias else "no",
            **changes,
            **({"output bias": "yes"} if self.use_output_bias else {}),
            "dropout (residual, attention, ReLU)": (
                f"{self.dropout_rate}, {self.attention_dropout_rate}, {self.relu_dropout_rate}"
            ),
        }

    def head_widths(self) -> tuple[int, int]:
        """The widths of a head: d_key and d_value."""
        d_head = self.d_model // self.num_heads
        return self.d_key or d_head, self.d_value or d_head

    def expert_width(self) -> int:
        """The inner width of an expert."""
        return self.d_expert or self.d_ff

    def _numbers_of_sublayers(self) -> tuple[int, int]:
        """Numbers of attention sub-layers and of feed-forward sub-layers in both stacks together."""
        layers = self.num_encoder_layers + self.num_decoder_layers
        return layers + self.num_decoder_layers, layers

    def _attention_matrices(self) -> int:
        """Parameters of W^Q, W^K, W^V and W^O of all heads."""
        return 2 * self.d_model * self.num_heads * sum(self.head_widths())

    def _attention_vectors(self) -> int:
        """Parameters of the biases, and of the vectors v of additive scores."""
        d_key, d_value = self.head_widths()
        biases = self.num_heads * (2 * d_key + d_value) + self.d_model if self.use_attention_bias else 0
        return biases + (self.num_heads * d_key if self.attention_score == "additive" else 0)

    def _block(self, length: int) -> tuple[int, int]:
        """Block size of windowed attention, and its reach beyond a block; 0 if one block covers a short sentence."""
        reach = self.attention_window or length
        count = max(math.ceil(length / max(2 * reach, WINDOW_BLOCK)), 1)
        return math.ceil(length / count), reach if count > 1 else 0

    def _sum_layers(self, length: int, encoder: int, decoder: int) -> int:
        """Keys that one source token and one target token attend to, summed over all layers.

        In sentences of `length` tokens, self-attention has `encoder` or `decoder` keys, but at most `length`, and
        attention to the memory has `length`.
        """
        cross = self.num_decoder_layers * length
        return self.num_encoder_layers * min(length, encoder) + self.num_decoder_layers * min(length, decoder) + cross

    def _feed_forward_matrices(self) -> int:
        """Parameters of the matrices that one token uses: those of the network, or of its experts and the gates."""
        if not self.num_experts:
            return 2 * self.d_model * self.d_ff
        gates = (1 + self.gate_noise) * self.num_experts
        return self.d_model * (2 * self.experts_per_token * self.expert_width() + gates)

    def _feed_forward_parameters(self) -> int:
        if not self.num_experts:
            return self._feed_forward_matrices() + self.d_ff + self.d_model
        expert = 2 * self.d_model * self.expert_width() + self.expert_width() + self.d_model
        return self.num_experts * (expert + (1 + self.gate_noise) * self.d_model)

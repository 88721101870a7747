"""Mixture of experts: feed-forward networks, of which a gating network selects a few at each position."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from t2t_keras import kernels
from t2t_keras.config.layer_settings import LayerSettings
from t2t_keras.kernels import plain
from t2t_keras.kernels.contexts import ProductDtype
from t2t_keras.layers.collectors import AuxiliaryLosses
from t2t_keras.layers.dropout import Dropout, draw_seed, fold_in
from t2t_keras.layers.feed_forward import FeedForward
from t2t_keras.layers.layer import input_spec_of
from t2t_keras.layers.trainable_parts import part_arguments
from t2t_keras.layers.weight_options import WeightedLayer, copy_initializer
from t2t_keras.tensor import Tensor
from t2t_keras.values import NonNegativeFloat, PositiveInt, Rate, check_arguments

# Minimum standard deviation of the noise, which keeps the gradient of the load finite.
_MIN_DEVIATION = 0.01


class Gating(NamedTuple):
    """The experts selected for each row, and their weights.

    Attributes:
        experts: indices of the selected experts, int32 [rows, experts_per_token].
        gates: their weights, float32 [rows, experts_per_token]; each row sums to 1.
        load: float32 [rows, num_experts], the probability that an expert would be selected if only its own noise were
            drawn again; without noise, 1 for the selected experts and 0 for the others.
    """

    experts: Tensor
    gates: Tensor
    load: Tensor


class ExpertWeights(NamedTuple):
    """The weights of all experts.

    Attributes:
        inner_kernels: float [num_experts, d_model, d_expert].
        inner_biases: float [num_experts, d_expert].
        outer_kernels: float [num_experts, d_expert, d_model].
        outer_biases: float [num_experts, d_model].
    """

    inner_kernels: Tensor
    inner_biases: Tensor
    outer_kernels: Tensor
    outer_biases: Tensor


def top_k_gating(logits: Tensor, experts_per_token: int, noise: tuple[Tensor, Tensor] | None = None) -> Gating:
    """Selects the k experts with the largest logits + noise, and computes their load (Shazeer et al., appendix A).

    The gates are the softmax over these k values.

    Args:
        logits: float32 [rows, num_experts].
        experts_per_token: k.
        noise: standard normal numbers and the standard deviations that scale them, float32 [rows, num_experts] each.
    """
    count, k = logits.shape[1], experts_per_token
    noisy_logits = logits if noise is None else logits + noise[0] * noise[1]
    largest, experts = ops.top_k(noisy_logits, min(k + 1, count))  # --> [rows, k + 1] each
    gates, experts = kernels.softmax(largest[:, :k]), experts[:, :k]
    is_picked = ops.sum(ops.one_hot(experts, count, dtype="float32"), axis=1)  # --> [rows, num_experts]
    if noise is None or k == count:
        return Gating(experts, gates, is_picked)
    # An expert is selected if it exceeds the k-th largest value of the other experts. For the experts that were
    # selected, this is the (k + 1)-th largest of all.
    threshold = ops.where(is_picked > 0, largest[:, k:], largest[:, k - 1 : k])  # --> [rows, num_experts]
    load = 0.5 * (1.0 + ops.erf((logits - threshold) / (noise[1] * math.sqrt(2.0))))
    return Gating(experts, gates, load)


def mixture(
    x: Tensor, gating: Gating, weights: ExpertWeights, grouped_linear: Callable, dropout: Callable = lambda inner: inner
) -> Tensor:
    """Sum of the experts' outputs weighted by their gates: float [rows, d_model] --> float [rows, d_model].

    Pairs of a row and one of its experts are sorted by expert, so that each expert processes its rows in one product.
    """
    rows, d_model = ops.shape(x)
    k, count = gating.experts.shape[1], weights.inner_kernels.shape[0]
    pair_experts = ops.reshape(gating.experts, (-1,))  # --> [rows * k]
    counts = ops.sum(ops.one_hot(pair_experts, count, dtype="int32"), axis=0)  # --> [num_experts]
    order = ops.cast(ops.argsort(pair_experts), "int32")  # --> [rows * k]
    copies = ops.broadcast_to(x[:, None], (rows, k, d_model))  # --> [rows, k, d_model]
    pairs = kernels.take_rows(copies, order)  # --> [rows * k, d_model]
    inner = ops.relu(grouped_linear(pairs, weights.inner_kernels, weights.inner_biases, counts))  # --> [..., d_expert]
    outputs = grouped_linear(dropout(inner), weights.outer_kernels, weights.outer_biases, counts)
    outputs = kernels.put_rows(outputs, order, copies)  # --> [rows, k, d_model]
    return ops.sum(outputs * ops.cast(gating.gates, outputs.dtype)[..., None], axis=1)  # --> [rows, d_model]


@keras.saving.register_keras_serializable(package="t2t_keras")
class MixtureOfExperts(WeightedLayer):
    """The sum over experts i of G(x)_i E_i(x), where the gating network G selects k experts at each position.

    An expert is E_i(x) = max(0, x W_i + b_i) V_i + c_i. G is the softmax over the k largest entries of H(x) = x W_g +
    noise * softplus(x W_n). The noise is normal in training and 0 otherwise. W_g and W_n are initialised to zeros, and
    the gating is computed in float32. A position costs as much as k experts, regardless of their total number. The
    capacity of experts is not limited, so the output at a position does not depend on other positions.

    The balance loss adds two squared coefficients of variation over the experts: of their importance, the sum of their
    gates, and of their load. Shazeer et al. compute it over a batch; here it is computed for each sentence. The sum
    over a batch therefore does not depend on how the batch is divided, but the loss also encourages balance within a
    sentence. It is computed only inside an `AuxiliaryLosses` block.

    Args:
        num_experts: number of experts.
        experts_per_token: k, at most `num_experts`.
        d_expert: inner width of an expert.
        gate_noise: whether the gates are noisy in training; without noise the load has no gradient.
        balance_weight: factor on both parts of the balance loss.
        dropout_rate: dropout on the experts' inner activations.
        kwargs: the options of the experts' kernels and biases, such as `kernel_regularizer`, as in `WeightedLayer`; and
            the arguments of `keras.layers.Layer`. An initializer makes the kernel of each expert separately; a fixed
            seed is increased by 1 from each expert to the next.

    Call arguments:
        inputs: float [batch, length, d_model]; without a length axis, each row is a sentence of one token.
        seed: int32 [2], for noise and dropout; None draws a seed.
        token_rows: int32 [tokens], from `token_rows`: the rows to compute; the others become zeros, and shapes inside
            depend on the data. None computes all rows with static shapes, as XLA needs.
        training: whether noise and dropout are active.

    Returns:
        float, the shape of `inputs`.

    Reference: Shazeer et al., "Outrageously Large Neural Networks: The Sparsely-Gated Mixture-of-Experts Layer", 2017.
    """

    def __init__(
        self,
        num_experts: int,
        experts_per_token: int,
        d_expert: int,
        gate_noise: bool = True,
        balance_weight: float = 0.01,
        dropout_rate: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_arguments(PositiveInt, num_experts=num_experts, experts_per_token=experts_per_token, d_expert=d_expert)
        check_arguments(Rate, dropout_rate=dropout_rate)
        check_arguments(NonNegativeFloat, balance_weight=balance_weight)
        check_arguments(bool, gate_noise=gate_noise)
        if experts_per_token > num_experts:
            raise ValueError(f"`experts_per_token` must be in [1, num_experts={num_experts}], got {experts_per_token}")
        self.num_experts = num_experts
        self.experts_per_token = experts_per_token
        self.d_expert = d_expert
        self.gate_noise = gate_noise
        self.balance_weight = balance_weight
        self.dropout_rate = dropout_rate
        self.dropout = Dropout(dropout_rate, name="dropout", **part_arguments(self))
        self.seed_generator = keras.random.SeedGenerator() if gate_noise else None

    def build(self, inputs_shape: tuple) -> None:
        self.input_spec = input_spec_of(2, inputs_shape, more=True)
        d_model = inputs_shape[-1]
        gates = {"shape": (d_model, self.num_experts), "initializer": "zeros", "dtype": "float32", "autocast": False}
        self.gate_kernel = self.add_weight(**gates, name="gate_kernel")
        if self.gate_noise:
            self.noise_kernel = self.add_weight(**gates, name="noise_kernel")
        self.inner_kernels, self.inner_biases = self._add_weights("inner", d_model, self.d_expert)
        self.outer_kernels, self.outer_biases = self._add_weights("outer", self.d_expert, d_model)

    def _add_weights(self, name: str, d_in: int, d_out: int) -> tuple[Any, Any]:
        """Adds the kernels, [num_experts, d_in, d_out], and the biases, [num_experts, d_out], of one linear map."""

        def initialise(shape: tuple, dtype: Any = None) -> Tensor:
            copies = (copy_initializer(self.kernel_initializer, index) for index in range(shape[0]))
            each = map(keras.initializers.get, copies)
            return ops.stack([initializer(shape[1:], dtype=dtype) for initializer in each])

        limit = math.sqrt(6.0 / (d_in + d_out))
        is_glorot = self.kernel_initializer == "glorot_uniform"  # then one draw suffices for all experts
        initializer = keras.initializers.RandomUniform(-limit, limit) if is_glorot else initialise
        stacked = self.add_kernel(f"{name}_kernels", (self.num_experts, d_in, d_out), initializer)
        return stacked, self.add_bias(f"{name}_biases", (self.num_experts, d_out))

    def call(
        self, inputs: Tensor, seed: Tensor | None = None, token_rows: Tensor | None = None, training: bool | None = None
    ) -> Tensor:
        flat_inputs = ops.reshape(inputs, (-1, inputs.shape[-1]))  # --> [batch * length, d_model]
        x = flat_inputs if token_rows is None else kernels.take_rows(inputs, token_rows)  # --> [rows, d_model]
        if seed is None and training and self.gate_noise:
            seed = draw_seed(self.seed_generator)
        gating = self.gating(x, fold_in(seed, 0) if training and self.gate_noise else None)
        weights = ExpertWeights(self.inner_kernels, self.inner_biases, self.outer_kernels, self.outer_biases)
        grouped_linear = plain.grouped_linear if token_rows is None else kernels.grouped_linear

        def dropout(inner: Tensor) -> Tensor:
            return self.dropout(inner, seed=fold_in(seed, 1), training=training)

        outputs = mixture(x, gating, weights, grouped_linear, dropout)
        collector = AuxiliaryLosses.innermost()
        if collector is not None:
            collector.losses.append(self._balance_loss(gating, inputs, collector.token_mask, token_rows))
        if token_rows is None:
            return kernels.reshape_like(outputs, inputs)  # --> [batch, length, d_model]
        return kernels.put_rows(outputs, token_rows, inputs)  # --> [batch, length, d_model]

    def gating(self, x: Tensor, seed: Tensor | None = None) -> Gating:
        """Selects the experts of rows, float [rows, d_model]; a seed, int32 [2], adds noise."""
        x = ops.cast(x, "float32")
        with ProductDtype("float32"):
            logits = kernels.linear(x, self.gate_kernel, None)  # --> [rows, num_experts]
        if seed is None:
            return top_k_gating(logits, self.experts_per_token)
        deviations = ops.maximum(ops.softplus(kernels.linear(x, self.noise_kernel, None)), _MIN_DEVIATION)
        noise = kernels.normal(kernels.shape(logits), seed), deviations
        return top_k_gating(logits, self.experts_per_token, noise)

    def _balance_loss(
        self, gating: Gating, inputs: Tensor, token_mask: Tensor | None, token_rows: Tensor | None
    ) -> Tensor:
        """The balance loss of each sentence, float32 [batch]."""
        batch, *lengths, _ = ops.shape(inputs)
        length = math.prod(lengths)  # 1 without a length axis
        is_picked = ops.one_hot(gating.experts, self.num_experts, dtype="float32")  # --> [rows, k, num_experts]
        importance = ops.sum(is_picked * gating.gates[..., None], axis=1)  # --> [rows, num_experts]
        usage = ops.concatenate([importance, gating.load], axis=-1)  # --> [rows, 2 * num_experts]
        if token_rows is None:
            usage = ops.reshape(usage, (batch, length, 2 * self.num_experts))  # --> [batch, length, 2 * num_experts]
            if token_mask is not None:
                usage *= ops.reshape(ops.cast(token_mask, "float32"), (batch, length, 1))
            sums = ops.sum(usage, axis=1)  # --> [batch, 2 * num_experts]
        else:
            sums = ops.segment_sum(usage, token_rows // length, num_segments=batch)  # --> [batch, 2 * num_experts]
        sums = ops.reshape(sums, (-1, 2, self.num_experts))  # --> [batch, 2, num_experts]
        # Without tokens, the variation is 0.
        variation = ops.var(sums, axis=-1) / (ops.square(ops.mean(sums, axis=-1)) + 1e-10)  # --> [batch, 2]
        return self.balance_weight * ops.sum(variation, axis=-1)  # --> [batch]


def feed_forward_layer(settings: LayerSettings, **arguments: Any) -> FeedForward | MixtureOfExperts:
    """Makes the position-wise sub-layer that a layer's settings choose, with the given arguments."""
    if settings.num_experts:
        if settings.activation != "relu":
            raise ValueError(f"`activation` must be 'relu' with experts, got {settings.activation!r}")
        return MixtureOfExperts(**settings.experts, name="feed_forward", **arguments)
    return FeedForward(**settings.feed_forward, name="feed_forward", **arguments)

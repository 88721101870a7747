"""A convolutional model with attention: ConvS2S in the paper's Table 2."""

import math
from typing import Any

import keras
from keras import ops

from t2t_keras.baselines.conv_s2s.conv_s2s_config import ConvS2SConfig
from t2t_keras.baselines.conv_s2s.convolution_block import (
    ROOT_HALF,
    AttentiveConvolutionBlock,
    AttentiveConvolutionStep,
    ConvolutionalMemory,
    ConvolutionBlock,
    normalised_linear,
)
from t2t_keras.baselines.convolution import LinearStep
from t2t_keras.layers import Dropout, LearnedPositions, TiedEmbedding
from t2t_keras.layers.dropout import fold_in
from t2t_keras.layers.trainable_parts import part_arguments
from t2t_keras.models.contract import ATTENTION, BFLOAT16, COVERAGE, Attentions, Cache, Search, States, initial_coverage
from t2t_keras.models.encoder_decoder import EncoderDecoder
from t2t_keras.symbols import PAD_ID
from t2t_keras.tensor import Tensor

_EMBEDDING_STDDEV = 0.1


@keras.saving.register_keras_serializable(package="t2t_keras")
class ConvS2S(EncoderDecoder):
    """Stacks of gated convolutions, where every block of the decoder attends to the encoder's outputs.

    All kernels are weight-normalised, but not the embeddings, the positions and the output matrix. See
    `EncoderDecoder` for the call.

    Args:
        config: sizes and choices.

    Reference: Gehring et al., "Convolutional Sequence to Sequence Learning", 2017.
    """

    capabilities = frozenset({ATTENTION, COVERAGE, BFLOAT16})

    config_class = ConvS2SConfig

    def __init__(self, config: ConvS2SConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        shared, rate = part_arguments(self), config.dropout_rate
        self.source_positions, self.target_positions = (
            LearnedPositions(config.max_positions, initial_stddev=_EMBEDDING_STDDEV, name=name, **shared)
            for name in ("source_positions", "target_positions")
        )
        encoder, decoder = config.encoder_blocks(), config.decoder_blocks()
        self.encoder_inputs = normalised_linear(encoder[0].d_in, dropout_rate=rate, name="encoder_inputs", **shared)
        self.encoder_layers = [
            ConvolutionBlock(block.width, block.kernel_size, dropout_rate=rate, name=f"encoder_{number}", **shared)
            for number, block in enumerate(encoder, start=1)
        ]
        self.encoder_outputs = normalised_linear(config.d_model, name="encoder_outputs", **shared)
        self.decoder_inputs = normalised_linear(decoder[0].d_in, dropout_rate=rate, name="decoder_inputs", **shared)
        self.decoder_layers = [
            AttentiveConvolutionBlock(
                block.width, block.kernel_size, config.d_model, rate, name=f"decoder_{number}", **shared
            )
            for number, block in enumerate(decoder, start=1)
        ]
        self.decoder_outputs = normalised_linear(config.output_width(), name="decoder_outputs", **shared)
        self.dropout = Dropout(rate, name="dropout", **shared)

    def make_embedding(self, name: str, *, use_bias: bool = False) -> TiedEmbedding:
        """Makes the layer of one matrix, initialised as in section 3.5 of Gehring et al.; embeddings are not scaled."""
        config, width, stddev = self.config, self.config.d_model, _EMBEDDING_STDDEV
        if name == "output_embedding":
            width = config.output_width()
            stddev = math.sqrt((1 - config.dropout_rate) / width)
        return TiedEmbedding(
            self.entries_of(name),
            width,
            use_bias=use_bias,
            scale=1.0,
            initial_stddev=stddev,
            name=name,
            **part_arguments(self),
        )

    def build_layers(self) -> None:
        config = self.config
        embedded = (None, None, config.d_model)
        for layer in (self.source_positions, self.target_positions, self.encoder_inputs, self.decoder_inputs):
            layer.build(embedded)
        encoder, decoder = config.encoder_blocks(), config.decoder_blocks()
        for layer, block in zip(self.encoder_layers + self.decoder_layers, encoder + decoder, strict=True):
            layer.build((None, None, block.d_in))
        self.encoder_outputs.build((None, None, encoder[-1].width))
        self.decoder_outputs.build((None, None, decoder[-1].width))

    def states(
        self,
        inputs: dict[str, Tensor],
        *,
        seed: Tensor | None = None,
        training: bool | None = False,
        skip_padding: bool = False,
    ) -> States:
        memory = self.encode(inputs["source"], fold_in(seed, 0), training)
        hidden, _ = self._decode(inputs["target"], memory, fold_in(seed, 1), training)
        return States(hidden, ops.zeros((), "float32"))

    def encode(self, source: Tensor, seed: Tensor | None = None, training: bool | None = False) -> ConvolutionalMemory:
        self.ensure_built()
        is_token = ops.not_equal(source, 0)
        embedded = self.source_positions(self.source_embedding(source))  # --> [batch, source_len, d_model]
        embedded = self.dropout(embedded, seed=fold_in(seed, 0), training=training)
        x = self.encoder_inputs(embedded)
        for number, layer in enumerate(self.encoder_layers, start=1):
            x = layer(x, is_token, seed=fold_in(seed, number), training=training)
        # Each attention sends two gradients to the encoder, through keys and through values. They are averaged, as in
        # section 3.4 of Gehring et al.
        z = _with_scaled_gradient(self.encoder_outputs(x), 1 / (2 * len(self.decoder_layers)))
        num_tokens = ops.cast(ops.count_nonzero(source, axis=1), z.dtype)[:, None, None]
        values = (z + embedded) * (ROOT_HALF * ops.sqrt(num_tokens))  # --> [batch, source_len, d_model]
        return ConvolutionalMemory(z, values, ops.not_equal(source, PAD_ID)[:, None])

    def _decode(
        self, target: Tensor, memory: ConvolutionalMemory, seed: Tensor | None, training: bool | None
    ) -> tuple[Tensor, list[Tensor]]:
        """Returns the hidden states, float [batch, target_len, output width], and each block's attention weights."""
        embedded = self.target_positions(self.embed_targets(target))  # --> [batch, target_len, d_model]
        embedded = self.dropout(embedded, seed=fold_in(seed, 0), training=training)
        x, attention = self.decoder_inputs(embedded), []
        for number, layer in enumerate(self.decoder_layers, start=1):
            x, weights = layer(x, embedded, memory, seed=fold_in(seed, number), training=training)
            attention.append(weights)
        hidden = self.decoder_outputs(x)
        return self.dropout(hidden, seed=fold_in(seed, number + 1), training=training), attention

    def logits_and_attention(self, inputs: dict[str, Tensor]) -> tuple[Tensor, Attentions]:
        hidden, attention = self._decode(inputs["target"], self.encode(inputs["source"]), None, False)
        attention = ops.cast(ops.stack(attention, axis=1), "float32")  # --> [batch, layers, target_len, source_len]
        cross = attention[:, :, None]  # --> [batch, layers, 1 head, target_len, source_len]
        return self.logits(hidden), Attentions.cross_only(cross)

    def alignment_attention(self, inputs: dict[str, Tensor]) -> Tensor:
        """Returns the attention weights averaged over all blocks: float32 [batch, target_len, source_len]."""
        return ops.mean(self.logits_and_attention(inputs)[1].cross[:, :, 0], axis=1)

    def start_search(
        self, source: Tensor, memory: ConvolutionalMemory, beam_size: int, *, capabilities: frozenset[str] = frozenset()
    ) -> Search:
        """Prepares a search; see `StepModel`. The coverage sums the attention averaged over all blocks."""
        dtype, logits_of = self.step_products(capabilities)
        first, last = LinearStep(self.decoder_inputs, dtype), LinearStep(self.decoder_outputs, dtype)
        steps = [AttentiveConvolutionStep(layer, dtype) for layer in self.decoder_layers]

        def step(token_ids: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
            embedded = self.target_positions(self.target_embedding(token_ids[:, None]), start=cache.position)
            embedded = ops.reshape(embedded, (-1, beam_size, self.config.d_model))  # --> [batch, beam, d_model]
            x, pasts, attention = first(embedded), [], []
            for block, past in zip(steps, cache.per_hypothesis, strict=True):
                x, weights, past = block(x, embedded, cache.source, past)
                pasts.append(past)
                attention.append(weights)
            hidden = ops.reshape(last(x), (-1, self.config.output_width()))  # --> [batch * beam, output width]
            coverage = cache.coverage
            if COVERAGE in capabilities:
                coverage += ops.cast(sum(attention) / len(attention), "float32")  # --> [batch, beam, source_len]
            after = cache._replace(position=cache.position + 1, per_hypothesis=tuple(pasts), coverage=coverage)
            return logits_of(hidden), after

        batch = ops.shape(source)[0]
        pasts = tuple(block.convolution.empty_past(batch, beam_size, self.compute_dtype) for block in steps)
        coverage = initial_coverage(source, beam_size, capabilities)
        return Search(step, Cache(ops.zeros((), "int32"), pasts, (), memory, coverage))


def _with_scaled_gradient(x: Tensor, scale: float) -> Tensor:
    """Returns x, with its gradient multiplied by `scale`."""
    constant = ops.stop_gradient(x)
    return constant + (x - constant) * scale

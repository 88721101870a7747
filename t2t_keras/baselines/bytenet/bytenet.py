"""A model of dilated convolutions without attention: ByteNet in the paper's Table 2, by Kalchbrenner et al."""

from collections.abc import Iterable
from typing import Any

import keras
from keras import ops

from t2t_keras.baselines.bytenet.bytenet_config import ByteNetConfig
from t2t_keras.baselines.bytenet.dilated_block import DilatedBlock, DilatedBlockStep
from t2t_keras.baselines.convolution import Convolution, LinearStep
from t2t_keras.layers import Dropout, LayerNormalization, TiedEmbedding
from t2t_keras.layers.dropout import fold_in
from t2t_keras.layers.trainable_parts import part_arguments
from t2t_keras.models.contract import BFLOAT16, Cache, Search, States, initial_coverage
from t2t_keras.models.encoder_decoder import EncoderDecoder
from t2t_keras.tensor import Tensor


@keras.saving.register_keras_serializable(package="t2t_keras")
class ByteNet(EncoderDecoder):
    """A stack of dilated convolutions over the source, and a stack of causal ones over the target on top of it.

    There is no attention. At position t, the decoder reads the memory at position t, concatenated to the embedding of
    the previous token. Before it is encoded, the source is unfolded to `config.unfolded_length`: a learned embedding
    fills the positions after its tokens. Beyond that length, the decoder reads zeros. See `EncoderDecoder` for the
    call.

    Args:
        config: sizes and choices.

    Reference: Kalchbrenner et al., "Neural Machine Translation in Linear Time", 2016.
    """

    capabilities = frozenset({BFLOAT16})

    config_class = ByteNetConfig

    def __init__(self, config: ByteNetConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        if self.source_embedding is self.target_embedding:  # the former is twice as wide, so never tied
            self.source_embedding = self.make_embedding("source_embedding")
        self.dropout = Dropout(config.dropout_rate, name="dropout", **part_arguments(self))
        self.encoder_layers = self._blocks("encoder", config.num_encoder_layers, causal=False)
        self.decoder_layers = self._blocks("decoder", config.num_decoder_layers, causal=True)
        self.encoder_norm, self.decoder_norm = (
            LayerNormalization(config.layer_norm_epsilon, name=name, **part_arguments(self))
            for name in ("encoder_norm", "decoder_norm")
        )
        self.encoder_readout, self.decoder_readout = (
            Convolution(config.d_model, 1, name=name, **part_arguments(self))
            for name in ("encoder_readout", "decoder_readout")
        )

    def make_embedding(self, name: str, *, use_bias: bool = False) -> TiedEmbedding:
        width = self.config.d_model * (2 if name == "source_embedding" else 1)
        return TiedEmbedding(self.entries_of(name), width, use_bias=use_bias, name=name, **part_arguments(self))

    def _blocks(self, stack: str, num_layers: int, *, causal: bool) -> list[DilatedBlock]:
        config = self.config
        return [
            DilatedBlock(
                config.d_model,
                config.kernel_size,
                config.dilation_rate(number),
                causal,
                config.dropout_rate,
                config.layer_norm_epsilon,
                name=f"{stack}_{number}",
                **part_arguments(self),
            )
            for number in range(num_layers)
        ]

    def build_layers(self) -> None:
        # A normal distribution, because layer normalisation of zeros multiplies gradients by a thousand in every layer.
        self.unfolding = self.add_weight(
            shape=(2 * self.config.d_model,),
            initializer=keras.initializers.RandomNormal(stddev=1.0),
            name="unfolding_embedding",
        )
        layers: list[keras.layers.Layer] = [*self.encoder_layers, *self.decoder_layers]
        layers += [self.encoder_norm, self.decoder_norm, self.encoder_readout, self.decoder_readout]
        for layer in layers:
            layer.build((None, None, 2 * self.config.d_model))

    def states(
        self,
        inputs: dict[str, Tensor],
        *,
        seed: Tensor | None = None,
        training: bool | None = False,
        skip_padding: bool = False,
    ) -> States:
        memory = self.encode(inputs["source"], fold_in(seed, 0), training)
        target, seed = inputs["target"], fold_in(seed, 1)
        zeros = ops.zeros((ops.shape(target)[0], ops.shape(target)[1], self.config.d_model), memory.dtype)
        memory = ops.concatenate([memory, zeros], axis=1)[:, : ops.shape(target)[1]]  # [batch, target_len, d_model]
        x = ops.concatenate([self.embed_targets(target), memory], axis=-1)  # --> [batch, target_len, 2 d_model]
        x = self._apply_blocks(self.decoder_layers, x, None, seed, training)
        return States(self.decoder_readout(ops.relu(self.decoder_norm(x))), ops.zeros((), "float32"))

    def encode(self, source: Tensor, seed: Tensor | None = None, training: bool | None = False) -> Tensor:
        """Returns the memory of a source, int [batch, source_len]: float [batch, unfolded_len, d_model].

        The padded source_len determines unfolded_len. Beyond the unfolded length of each sentence, the memory is 0.
        """
        self.ensure_built()
        batch, length = ops.shape(source)[:2]
        unfolded_len = self.config.unfolded_length(length)
        tokens = ops.cast(ops.count_nonzero(source, axis=1), "int32")
        is_position = ops.arange(unfolded_len, dtype="int32") < self.config.unfolded_length(tokens)[:, None]
        source = ops.concatenate([source, ops.zeros((batch, unfolded_len - length), source.dtype)], axis=1)
        x = self.source_embedding(source)  # --> [batch, unfolded_len, 2 d_model]
        x = ops.where(ops.expand_dims(ops.equal(source, 0), -1), ops.cast(self.unfolding, x.dtype), x)
        x = self._apply_blocks(self.encoder_layers, x, is_position, seed, training)
        memory = self.encoder_readout(ops.relu(self.encoder_norm(x)))
        is_position = ops.expand_dims(ops.cast(is_position, memory.dtype), -1)  # --> [batch, unfolded_len, 1]
        return memory * is_position  # --> [batch, unfolded_len, d_model]

    def _apply_blocks(
        self,
        blocks: Iterable[DilatedBlock],
        x: Tensor,
        token_mask: Tensor | None,
        seed: Tensor | None,
        training: bool | None,
    ) -> Tensor:
        """Applies dropout and then a stack of blocks. Inputs and outputs are float [batch, length, 2 d_model]."""
        x = self.dropout(x, seed=fold_in(seed, 0), training=training)
        for number, block in enumerate(blocks, start=1):
            x = block(x, token_mask, seed=fold_in(seed, number), training=training)
        return x

    def start_search(
        self, source: Tensor, memory: Tensor, beam_size: int, *, capabilities: frozenset[str] = frozenset()
    ) -> Search:
        """Prepares a search; see `StepModel`. The time of a step does not depend on the number of earlier tokens."""
        dtype, logits_of = self.step_products(capabilities)
        blocks = [DilatedBlockStep(block, dtype) for block in self.decoder_layers]
        readout = LinearStep(self.decoder_readout, dtype)
        d_model, end = self.config.d_model, self.config.unfolded_length(ops.shape(source)[1])

        def step(token_ids: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
            newest = ops.take(cache.source, ops.minimum(cache.position, end), axis=1)  # --> [batch, d_model]
            batch = ops.shape(newest)[0]
            embedded = self.target_embedding(token_ids)  # --> [batch * beam, d_model]
            embedded = ops.reshape(embedded, (batch, beam_size, d_model))  # --> [batch, beam, d_model]
            newest = ops.repeat(newest[:, None], beam_size, axis=1)  # --> [batch, beam, d_model]
            x = ops.concatenate([embedded, newest], axis=-1)  # --> [batch, beam, 2 d_model]
            pasts = []
            for block, past in zip(blocks, cache.per_hypothesis, strict=True):
                x, past = block(x, past)  # --> [batch, beam, 2 d_model]
                pasts.append(past)
            hidden = readout(ops.relu(self.decoder_norm(x)))
            logits = logits_of(ops.reshape(hidden, (batch * beam_size, d_model)))  # --> [batch * beam, vocab]
            return logits, cache._replace(position=cache.position + 1, per_hypothesis=tuple(pasts))

        batch = ops.shape(source)[0]
        pasts = tuple(block.empty_past(batch, beam_size, self.compute_dtype) for block in blocks)
        memory = ops.pad(memory, ((0, 0), (0, 1), (0, 0)))  # zeros to read beyond its end
        coverage = initial_coverage(source, beam_size)
        return Search(step, Cache(ops.zeros((), "int32"), pasts, (), memory, coverage))

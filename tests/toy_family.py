"""A family of models from outside the package: a recurrent decoder that starts with the mean source embedding."""

import dataclasses
from typing import ClassVar

import keras
from keras import ops

from t2t_keras.config import Config, ModelConfig, TrainConfig
from t2t_keras.config.model_config import Activations
from t2t_keras.layers import Dropout, TiedEmbedding
from t2t_keras.models import families, presets
from t2t_keras.models.contract import Cache, Search, States, initial_coverage
from t2t_keras.values import PositiveInt, Rate


@dataclasses.dataclass(frozen=True)
class ToyConfig(ModelConfig):
    """Settings of a model with one matrix of embeddings and one recurrent cell."""

    family: ClassVar[str] = "toy"
    d_model: PositiveInt = 16
    dropout_rate: Rate = 0.1

    def parameter_counts(self):
        return {"embedding": self.vocab_size * self.d_model, "cell": (2 * self.d_model + 1) * self.d_model}

    def training_flops(self, length):
        return {"matrices": 6 * (2 * self.d_model**2 + self.vocab_size * self.d_model)}

    def kept_activations(self, length):
        return Activations(computed=3 * self.d_model, float32=0)


class Toy(keras.Model):
    """A recurrent decoder, whose initial state is the mean of the source embeddings."""

    capabilities: frozenset[str] = frozenset()

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        self.output_head = TiedEmbedding(config.vocab_size, config.d_model, name="embedding")
        self.dropout = Dropout(config.dropout_rate, name="dropout")
        self.cell = keras.layers.SimpleRNNCell(config.d_model, name="cell")
        self.decoder = keras.layers.RNN(self.cell, return_sequences=True, name="decoder")

    def build(self, input_shape=None):
        self.output_head.build()
        self.decoder.build((None, None, self.config.d_model))

    def call(self, inputs, seed=None, training=None):
        return self.logits(self.states(inputs, seed=seed, training=training).hidden)

    def states(self, inputs, *, seed=None, training=False, skip_padding=False):
        shifted = ops.pad(inputs["target"], ((0, 0), (1, 0)))[:, :-1]
        x = self.dropout(self.output_head(shifted), seed=seed, training=training)  # --> [batch, target_len, d_model]
        return States(self.decoder(x, initial_state=self.encode(inputs["source"])), ops.zeros(()))

    def logits(self, hidden):
        return self.output_head.logits(hidden)

    def encode(self, source):
        tokens = ops.cast(ops.count_nonzero(source, axis=1), "float32")[:, None]
        return ops.sum(self.output_head(source), axis=1) / ops.maximum(tokens, 1)  # --> [batch, d_model]

    def start_search(self, source, memory, beam_size, *, capabilities=frozenset()):
        def step(token_ids, cache):
            state = ops.reshape(cache.per_hypothesis, (-1, self.config.d_model))  # --> [batch * beam, d_model]
            hidden, _ = self.cell(self.output_head(token_ids), [state])
            state = ops.reshape(hidden, (-1, beam_size, self.config.d_model))  # --> [batch, beam, d_model]
            return self.logits(hidden), cache._replace(position=cache.position + 1, per_hypothesis=state)

        state = ops.repeat(memory[:, None], beam_size, axis=1)
        return Search(step, Cache(ops.zeros((), "int32"), state, (), (), initial_coverage(source, beam_size)))


families.register(ToyConfig, Toy)
presets.PRESETS["toy"] = Config(model=ToyConfig(), train=TrainConfig(tokens_per_batch=512, checkpoint_steps=100))

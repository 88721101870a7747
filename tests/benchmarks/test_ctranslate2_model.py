"""The conversion is right if a plain reading of its result, in CTranslate2's layout, is our network."""

import dataclasses

import numpy as np
import pytest

from benchmarks.ctranslate2_model import variables, vocabulary
from t2t_keras.config import TransformerConfig
from t2t_keras.layers.position import sinusoids
from t2t_keras.models.transformer import Transformer
from t2t_keras.models.weights import weight_names

SIZES = {"vocab_size": 11, "num_encoder_layers": 1, "num_decoder_layers": 2, "d_model": 8, "d_ff": 12, "num_heads": 2}
SOURCE, TARGET = [5, 3, 9, 1], [7, 2, 4, 1]


def converted(config):
    """Our model with random weights, and these as CTranslate2 has them."""
    model, rng = Transformer(config), np.random.default_rng(1)
    model.build()
    for variable in model.trainable_variables:
        variable.assign(rng.normal(size=variable.shape, scale=0.5))
    weights = {n: v.numpy() for n, v in zip(weight_names(model), model.trainable_variables, strict=True)}
    for side in ("source", "target"):
        weights.setdefault(f"{side}_positions/table", np.asarray(sinusoids(np.arange(9), config.d_model)))
    return model, variables(weights, dataclasses.asdict(config))


class Reader:
    """The network as CTranslate2 reads its variables."""

    def __init__(self, arrays, config):
        self.arrays, self.config, self.read = arrays, config, set()

    def get(self, name):
        self.read.add(name)
        return self.arrays[name]

    def linear(self, x, place):
        bias = self.get(f"{place}/bias") if f"{place}/bias" in self.arrays else 0.0
        return x @ self.get(f"{place}/weight").T + bias

    def norm(self, x, place):
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + self.config.layer_norm_epsilon)
        return x * self.get(f"{place}/gamma") + self.get(f"{place}/beta")

    def residual(self, x, place, layer):
        if self.config.norm_position == "pre":
            return x + layer(self.norm(x, f"{place}/layer_norm"))
        return self.norm(x + layer(x), f"{place}/layer_norm")

    def attention(self, x, place, memory=None, causal=False):
        if memory is None:
            q, k, v = np.split(self.linear(x, f"{place}/linear_0"), 3, axis=-1)
        else:
            q, (k, v) = self.linear(x, f"{place}/linear_0"), np.split(self.linear(memory, f"{place}/linear_1"), 2, -1)
        heads = []
        for q_i, k_i, v_i in zip(*(np.split(part, self.config.num_heads, axis=-1) for part in (q, k, v)), strict=True):
            scores = q_i @ k_i.T / np.sqrt(q_i.shape[-1])
            scores = np.where(np.tri(len(x)), scores, -1e9) if causal else scores
            heads.append(np.exp(scores) / np.exp(scores).sum(-1, keepdims=True) @ v_i)
        return self.linear(np.concatenate(heads, -1), f"{place}/linear_{1 if memory is None else 2}")

    def feed_forward(self, x, place):
        return self.linear(np.maximum(self.linear(x, f"{place}/linear_0"), 0), f"{place}/linear_1")

    def stack(self, name, embeddings, ids, memory=None):
        x = self.get(f"{name}/{embeddings}/weight")[ids] * np.sqrt(self.config.d_model)
        if memory is not None:
            x[0] = 0.0  # "start_from_zero_embedding"
        x = x + self.get(f"{name}/position_encodings/encodings")[: len(ids)]
        for i in range(getattr(self.config, f"num_{name}_layers")):
            own, cross, inner = (f"{name}/layer_{i}/{part}" for part in ("self_attention", "attention", "ffn"))
            x = self.residual(x, own, lambda x, own=own: self.attention(x, own, causal=memory is not None))
            if memory is not None:
                x = self.residual(x, cross, lambda x, cross=cross: self.attention(x, cross, memory))
            x = self.residual(x, inner, lambda x, inner=inner: self.feed_forward(x, inner))
        return self.norm(x, f"{name}/layer_norm") if self.config.norm_position == "pre" else x


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm_position": "pre"},
        {"tie_embeddings": False, "use_attention_bias": False},
        {"position_encoding": "learned", "max_positions": 6},
    ],
    ids=["post-norm", "pre-norm", "apart", "learned"],
)
def test_what_is_written_is_our_network(changes):
    config = TransformerConfig(**SIZES, **changes)
    model, arrays = converted(config)
    reader = Reader(arrays, config)
    memory = reader.stack("encoder", "embeddings_0", SOURCE)
    states = reader.stack("decoder", "embeddings", [0, *TARGET[:-1]], memory)
    logits = reader.linear(states, "decoder/projection")
    expected = model({"source": np.array([SOURCE]), "target": np.array([TARGET])}, training=False)[0]
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)
    assert reader.read == set(arrays)


def test_heads_of_another_width_are_refused():
    with pytest.raises(ValueError, match="d_model / num_heads = 4"):
        converted(TransformerConfig(**SIZES, d_key=3))


def test_every_id_has_a_name_of_its_own():
    names = vocabulary(500)
    assert len(set(names)) == len(names) == 500
    assert names[:4] == ["<pad>", "</s>", "<unk>", "3"]

"""Models for CTranslate2: compared with a NumPy reference, and with CTranslate2 where it is installed."""

import pathlib
import re

import numpy as np
import pytest

from t2t_keras.config import Config, TransformerConfig
from t2t_keras.errors import InputError
from t2t_keras.formats import ctranslate2 as converter
from t2t_keras.formats.ctranslate2 import variables
from t2t_keras.formats.portable_model import PortableModel
from t2t_keras.layers.position import sinusoids
from t2t_keras.models.transformer import Transformer
from t2t_keras.models.weights import weight_names
from tests.formats import foreign
from tests.inference import tiny

SIZES = {"vocab_size": 11, "num_encoder_layers": 1, "num_decoder_layers": 2, "d_model": 8, "d_ff": 12, "num_heads": 2}
SOURCE, TARGET = [5, 3, 9, 1], [7, 2, 4, 1]


def random_model(config):
    """Returns a model with random weights, and its variables in CTranslate2's format."""
    model, rng = Transformer(config), np.random.default_rng(1)
    model.build()
    for variable in model.trainable_variables:
        variable.assign(rng.normal(size=variable.shape, scale=0.5))
    weights = {n: v.numpy() for n, v in zip(weight_names(model), model.trainable_variables, strict=True)}
    for side in ("source", "target"):
        weights.setdefault(f"{side}_positions/table", np.asarray(sinusoids(np.arange(9), config.d_model)))
    return model, variables(weights, config)


class Reader:
    """A NumPy reference that reads CTranslate2's variables."""

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
        inner = self.linear(x, f"{place}/linear_0")
        inner = np.maximum(inner, 0) if self.config.activation == "relu" else inner / (1 + np.exp(-inner))
        return self.linear(inner, f"{place}/linear_1")

    def stack(self, name, embeddings, ids, memory=None):
        x = self.get(f"{name}/{embeddings}/weight")[ids] * np.sqrt(self.config.d_model)
        if memory is not None:
            x[0] = 0.0  # the option "start_from_zero_embedding"
        x = x + self.get(f"{name}/position_encodings/encodings")[: len(ids)]
        for i in range(getattr(self.config, f"num_{name}_layers")):
            self_attention, cross, inner = (
                f"{name}/layer_{i}/{part}" for part in ("self_attention", "attention", "ffn")
            )
            x = self.residual(
                x,
                self_attention,
                lambda x, self_attention=self_attention: self.attention(x, self_attention, causal=memory is not None),
            )
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
        {"activation": "swish", "use_output_bias": True},
        {"position_encoding": "learned", "max_positions": 6},
    ],
    ids=["post-norm", "pre-norm", "untied", "swish", "learned"],
)
def test_written_variables_compute_the_same_network(changes):
    config = TransformerConfig(**SIZES, **changes)
    model, arrays = random_model(config)
    reader = Reader(arrays, config)
    memory = reader.stack("encoder", "embeddings_0", SOURCE)
    states = reader.stack("decoder", "embeddings", [0, *TARGET[:-1]], memory)
    logits = reader.linear(states, "decoder/projection")
    expected = model({"source": np.array([SOURCE]), "target": np.array([TARGET])}, training=False)[0]
    np.testing.assert_allclose(logits[:, 1:], expected[:, 1:], rtol=1e-4, atol=1e-4)
    assert np.all(logits[:, 0] < -5e4)  # CTranslate2 must not predict padding either.
    assert reader.read == set(arrays)


@pytest.mark.integration
@pytest.mark.parametrize("numbers", ["float32", "int8"])
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="post"),
        pytest.param({"norm_position": "pre", "activation": "swish"}, id="pre", marks=pytest.mark.slow),
    ],
)
def test_ctranslate2_translates_like_the_translator(tmp_path, changes, numbers):
    ctranslate2 = pytest.importorskip("ctranslate2")
    model, texts = foreign.trained(**changes), foreign.TEXTS_TO_COPY
    assert converter.write(model, tmp_path, numbers) == ()
    theirs = ctranslate2.Translator(str(tmp_path), device="cpu", compute_type=numbers, intra_threads=1)
    ours = foreign.make_translator(model)
    pieces = [model.tokenizer.pieces(model.tokenizer.encode(text)) for text in texts]
    results = theirs.translate_batch(pieces, beam_size=4, length_penalty=0, min_decoding_length=0)
    ids = {piece: number for number, piece in enumerate(model.tokenizer.entries)}
    actual = [model.tokenizer.decode([ids[piece] for piece in result.hypotheses[0]]) for result in results]
    expected = [translation.text for translation in ours.translate(texts)]
    # Translations of this project contain no double blanks and no final blank.
    num_equal = sum(" ".join(a.split()) == b for a, b in zip(actual, expected, strict=True))
    assert num_equal == len(texts) if numbers == "float32" else num_equal > 0.7 * len(texts)
    assert len(set(expected)) > 40
    scores = [sum(score.log_probs) for score in theirs.score_batch(pieces, pieces)]
    log_probs = [score.log_prob for score in ours.score(texts, texts)]
    if numbers == "float32":
        np.testing.assert_allclose(scores, log_probs, rtol=1e-2)
    else:  # Rounding shifts scores by different amounts; without VNNI, sums of products also saturate.
        assert np.abs(np.subtract(scores, log_probs)).mean() < 0.5 * np.abs(log_probs).mean()


def test_ctranslate2_repeats_the_last_learned_position(tmp_path):
    ctranslate2 = pytest.importorskip("ctranslate2")
    sizes = {**tiny.MODEL, "vocab_size": tiny.tokenizer().vocab_size, "position_encoding": "learned"}
    config = TransformerConfig(**sizes, max_positions=4, layer_norm_epsilon=1e-5)
    model = PortableModel(Config(config), foreign.random_weights(config), tiny.tokenizer())
    assert converter.write(model, tmp_path) == ()
    pieces = [model.tokenizer.pieces(model.tokenizer.encode(text)) for text in tiny.SENTENCES]
    assert min(map(len, pieces)) > 4
    actual = ctranslate2.Translator(str(tmp_path), compute_type="float32").score_batch(pieces, pieces)
    expected = foreign.make_translator(model).score(tiny.SENTENCES, tiny.SENTENCES)
    np.testing.assert_allclose([sum(result.log_probs) for result in actual], [s.log_prob for s in expected], rtol=1e-3)


@pytest.mark.integration
def test_the_documented_example_translates(tmp_path, monkeypatch, capsys):
    pytest.importorskip("ctranslate2")
    (tmp_path / "multi30k_ct2").mkdir()
    converter.write(foreign.trained(), tmp_path / "multi30k_ct2")
    page = pathlib.Path(__file__).parents[2] / "docs" / "convert.md"
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    (code,) = (block for block in blocks if "ctranslate2" in block)
    monkeypatch.chdir(tmp_path)
    exec(code.replace("A dog runs.", "A fox"), {})
    assert capsys.readouterr().out == "A fox\n"


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"d_key": 3}, "CTranslate2 does not support model.d_key=3"),
        ({"attention_score": "additive", "num_experts": 2}, "num_experts=2, model.attention_score=additive"),
    ],
)
def test_unsupported_models_are_rejected(tmp_path, changes, message):
    config = Config(TransformerConfig(**{**SIZES, "experts_per_token": 1, **changes}))
    with pytest.raises(InputError, match=message):
        converter.write(PortableModel(config, {}, tiny.tokenizer()), tmp_path)
    assert not list(tmp_path.iterdir())

"""Small artificial models of other projects: vocabularies, tensors, directories, and their outputs."""

import dataclasses
import functools
import io
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import pytest
import sentencepiece

from t2t_keras.config import Config, DecodeConfig, TransformerConfig
from t2t_keras.errors import InputError
from t2t_keras.formats.portable_model import PortableModel, weight_shapes
from t2t_keras.inference.translator import Translator
from t2t_keras.losses import SmoothedCrossEntropy
from t2t_keras.models.families import make_model
from t2t_keras.models.transformer import Transformer
from t2t_keras.models.weights import assign_weights, weight_names
from t2t_keras.schedules import PaperSchedule
from t2t_keras.symbols import EOS_ID, UNK_ID
from tests.formats.trained_once import trained_once
from tests.inference import tiny

LAYERS, HEADS, D_MODEL, D_FF = 2, 2, 8, 12
ENGLISH, GERMAN = tiny.SENTENCES[:3], tiny.SENTENCES[3:]
TEXTS = ["Two dogs in the snow", "Ein Mann steht auf einer Leiter", "A fox 漢 barks", ""]


@functools.cache
def sentencepiece_model(language: str, model_type: str) -> bytes:
    """Trains a SentencePiece model with the id order and normalisation of these projects."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter((ENGLISH if language == "en" else GERMAN) * 5),
        model_writer=model,
        model_type=model_type,
        vocab_size=(60 if language == "en" else 55) + 40 * (model_type == "bpe"),
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return model.getvalue()


def unigram(language: str) -> bytes:
    """Returns the unigram model of a language, which most of these projects use."""
    return sentencepiece_model(language, "unigram")


def pieces(language: str) -> list[str]:
    """Returns the pieces of the unigram model without special symbols."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=unigram(language))
    return [processor.id_to_piece(number) for number in range(3, len(processor))]


def random_array(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(0.0, 0.5, shape).astype(np.float32)


_WINDOWS = [" ".join(text.split()[a:b]) for text in tiny.SENTENCES for a in range(8) for b in range(a + 1, a + 5)]
TEXTS_TO_COPY = [text for text in dict.fromkeys(_WINDOWS) if 0 < len(tiny.tokenizer().encode(text)) < 12]


@functools.cache
def trained(**changes) -> PortableModel:
    """Returns a Transformer that has learned to copy short texts, so that most searches end with the end symbol."""
    keras.utils.set_random_seed(1)
    rng, tokenizer = np.random.default_rng(1), tiny.tokenizer()
    text_ids = [n for n, entry in enumerate(tokenizer.entries) if n > UNK_ID and not entry.startswith("<0x")]
    lengths = rng.integers(1, 12, 4096)
    tokens = np.where(np.arange(12) < lengths[:, None], rng.choice(text_ids, (4096, 12)), 0).astype("int32")
    tokens[np.arange(4096), lengths] = EOS_ID
    sizes = {**tiny.MODEL, "d_model": 64, "d_ff": 128, "num_decoder_layers": 1, "dropout_rate": 0.0, **changes}
    config = TransformerConfig(vocab_size=tokenizer.vocab_size, **{"layer_norm_epsilon": 1e-5, **sizes})
    network = Transformer(config)
    network.build()

    def train() -> list[np.ndarray]:
        network.compile(keras.optimizers.Adam(PaperSchedule(64, 150, 0.4), 0.9, 0.98, 1e-9), SmoothedCrossEntropy(0.1))
        network.fit({"source": tokens, "target": tokens}, tokens, batch_size=64, epochs=14, verbose=0)
        return [weight.numpy() for weight in network.trainable_variables]

    settings = "_".join(f"{key}_{value}" for key, value in sorted(changes.items()))
    weights = dict(zip(weight_names(network), trained_once(f"copier_{settings}", train), strict=True))
    decode = DecodeConfig(length_normalization="none", ends_within_beam=True)
    return PortableModel(Config(config, decode=decode), weights, tokenizer)


def random_weights(config: TransformerConfig) -> dict[str, np.ndarray]:
    """Returns random weights of a Transformer by name."""
    rng = np.random.default_rng(1)
    return {name: random_array(rng, *shape) for name, shape in weight_shapes(config).items()}


def make_translator(model: PortableModel, **changes) -> Translator:
    """Returns a translator of a model, with changes to its search settings."""
    network = make_model(model.config.model)
    assign_weights(network, dict(model.weights))
    decode = dataclasses.replace(model.config.decode, **changes)
    return Translator(model.tokenizer, network, decode, model.config.data)


def logits(model: PortableModel, source: list[int], target: list[int]) -> np.ndarray:
    """Returns the logits, float [target_len, entries]; ids are those of this project."""
    network: keras.Model = make_model(model.config.model)
    assign_weights(network, dict(model.weights))
    return np.array(network({"source": np.array([source]), "target": np.array([target])}))[0]


def assert_error_names_damage(
    damage: tuple[Callable[[Path], object], str], folder: Path, read: Callable[[Path], object]
) -> None:
    """Damages a model's directory and asserts that reading it raises an error with the message."""
    change, message = damage
    change(folder)
    with pytest.raises(InputError, match=message):
        read(folder)

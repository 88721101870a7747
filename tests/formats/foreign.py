"""Small models of other projects, made up: vocabularies, tensors, folders; and what they compute."""

import functools
import io

import numpy as np
import sentencepiece
import tiny

from t2t_keras.formats.portable_model import PortableModel
from t2t_keras.models.families import make_model
from t2t_keras.models.weights import assign_weights

LAYERS, HEADS, D_MODEL, D_FF = 2, 2, 8, 12
ENGLISH, GERMAN = tiny.SENTENCES[:3], tiny.SENTENCES[3:]
TEXTS = ["Two dogs in the snow", "Ein Mann steht auf einer Leiter", "A fox 漢 barks", ""]


@functools.cache
def unigram(language: str) -> bytes:
    """A SentencePiece model as these projects have it: its own order, its own normalisation."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter((ENGLISH if language == "en" else GERMAN) * 5),
        model_writer=model,
        model_type="unigram",
        vocab_size=60 if language == "en" else 55,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return model.getvalue()


def pieces(language: str) -> list[str]:
    """The pieces of such a model, without special symbols."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=unigram(language))
    return [processor.id_to_piece(number) for number in range(3, len(processor))]


def random_array(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(0.0, 0.5, shape).astype(np.float32)


def logits(model: PortableModel, source: list[int], target: list[int]) -> np.ndarray:
    """Of our ids, float [target_len, entries]."""
    network = make_model(model.config.model)
    assign_weights(network, dict(model.weights))
    return np.array(network({"source": np.array([source]), "target": np.array([target])}))[0]

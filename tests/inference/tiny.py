"""Small objects for tests of translation: a vocabulary, models and runs."""

import functools
import pathlib
import tempfile
from typing import Any

import tensorflow as tf

from t2t_keras.config import Config, DataConfig, DecodeConfig, TransformerConfig
from t2t_keras.models.contract import Cache, Search, initial_coverage
from t2t_keras.models.transformer import Transformer
from t2t_keras.models.weights import weight_names
from t2t_keras.runs import checkpoints, run
from t2t_keras.search.engines import TensorFlowEngine
from t2t_keras.search.searcher import Searcher
from t2t_keras.text.tokenizer import Tokenizer, VocabType
from tests.vocabularies import train_tokenizer

SENTENCES = [
    "The quick brown fox jumps over the lazy dog.",
    "A man in a blue shirt is standing on a ladder.",
    "Two dogs play in the snow; one of them barks!",
    "Ein Mann in einem blauen Hemd steht auf einer Leiter.",
    "Zwei Hunde spielen im Schnee, und einer bellt.",
]
MODEL: dict[str, Any] = {"num_encoder_layers": 1, "num_decoder_layers": 2, "d_model": 16, "d_ff": 32, "num_heads": 2}


@functools.cache
def tokenizer(vocab_type: VocabType = "bpe") -> Tokenizer:
    with tempfile.TemporaryDirectory() as directory:
        return train_tokenizer(SENTENCES, 350, pathlib.Path(directory) / "vocab.model", vocab_type=vocab_type)


@functools.cache
def transformer(**changes: Any) -> Transformer:
    """An untrained model."""
    tf.keras.utils.set_random_seed(1)
    model = Transformer(TransformerConfig(vocab_size=tokenizer().vocab_size, **{**MODEL, **changes}))
    model.build()
    return model


def make_run(model_dir: pathlib.Path, model: Any = None, **data: Any) -> pathlib.Path:
    """Writes a run with a checkpoint of an untrained model, by default `transformer()`."""
    vocab_path = model_dir.parent / "tiny_vocab.model"
    vocab_path.write_bytes(tokenizer().serialized)
    model = model or transformer()
    config = Config(model=model.config, data=DataConfig(vocab_size=350, **data), decode=DecodeConfig(beam_size=2))
    the_run = run.Run(model_dir)
    the_run.start(config, model_dir.parent / "data", vocab_path)
    names = weight_names(model)
    weights = {name: weight.numpy() for name, weight in zip(names, model.trainable_variables, strict=True)}
    checkpoints.save(the_run.checkpoints_path, 1, weights, {}, {})
    return model_dir


class CopyModel:
    """A model that copies its source."""

    capabilities: frozenset[str] = frozenset()

    def __init__(self, vocab_size: int):
        self.vocab_size = vocab_size

    def encode(self, source: tf.Tensor) -> tf.Tensor:
        return source

    def start_search(
        self, source: tf.Tensor, memory: tf.Tensor, beam_size: int, *, capabilities: frozenset[str] = frozenset()
    ) -> Search:
        del capabilities

        def step(token_ids: tf.Tensor, cache: Cache) -> tuple[tf.Tensor, Cache]:
            source = cache.source
            column = source[:, tf.minimum(cache.position, tf.shape(source)[1] - 1)]
            column = tf.repeat(column, tf.shape(token_ids)[0] // tf.shape(source)[0])  # --> [batch * beam]
            return self.logits_of(column), cache._replace(position=cache.position + 1)

        return Search(step, Cache(tf.constant(0), (), (), memory, initial_coverage(source, beam_size)))

    def logits_of(self, column: tf.Tensor) -> tf.Tensor:
        return 30.0 * tf.one_hot(column, self.vocab_size)


@functools.cache
def copy_model() -> CopyModel:
    return CopyModel(tokenizer().vocab_size)


class SharedSearches(TensorFlowEngine):
    """Traces each search once for all translators of a model with the same settings."""

    def __init__(self) -> None:
        self._searchers: dict[tuple, tuple[Any, Searcher]] = {}

    def searcher(self, model, config, excluded=(), form=None, continuations=()):
        key = (id(model), config, str(excluded), repr(form), tuple(continuations))
        if key not in self._searchers:
            self._searchers[key] = model, Searcher(model, config, excluded, form, continuations)
        return self._searchers[key][1]

    def cache_clear(self) -> None:
        """Frees the graphs; `tests/conftest.py` calls it after each file."""
        self._searchers.clear()

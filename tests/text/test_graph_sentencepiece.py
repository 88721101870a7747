"""A vocabulary in a SavedModel: gone with the model that was loaded, and with no other."""

import gc

import pytest
import tensorflow as tf
import tensorflow_text
from tensorflow_text.python.ops.sentencepiece_tokenizer import gen_sentencepiece_tokenizer

from t2t_keras.text.tokenizer import Tokenizer
from tests.inference import tiny
from tests.vocabularies import train_tokenizer


class Cutter(tf.Module):
    def __init__(self, serialized):
        super().__init__()
        self.tokenizer = Tokenizer(serialized).graph_tokenizer()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def cut(self, texts):
        return self.tokenizer.tokenize(texts).flat_values


def size(handle):
    return int(gen_sentencepiece_tokenizer.sentencepiece_vocab_size_op(handle))


def test_it_is_freed_with_what_was_loaded(tmp_path):
    tokenizer = train_tokenizer(tiny.SENTENCES, 350, tmp_path / "vocab.model")
    module = Cutter(tokenizer.serialized)
    assert isinstance(module.tokenizer, tensorflow_text.SentencepieceTokenizer)
    tf.saved_model.save(module, tmp_path / "saved")
    expected = module.cut(["A man."]).numpy().tolist()
    stays, goes = tf.saved_model.load(tmp_path / "saved"), tf.saved_model.load(tmp_path / "saved")
    handles = [each.tokenizer._model_resource.resource_handle for each in (module, stays, goes)]
    assert [size(handle) for handle in handles] == 3 * [tokenizer.vocab_size]
    del goes
    gc.collect()
    with pytest.raises(tf.errors.NotFoundError):
        size(handles[2])
    del module
    gc.collect()
    with pytest.raises(tf.errors.NotFoundError):
        size(handles[0])
    assert stays.cut(["A man."]).numpy().tolist() == expected

"""The stages of an export, for vocabularies of each type: the same tokens, parts and texts as in Python."""

import exporting
import numpy as np
import pytest
import tensorflow as tf
import tiny

from t2t_keras.config import DataConfig, TransformerConfig
from t2t_keras.export.exported_weights import Weights
from t2t_keras.export.graph_pipeline import Pipeline
from t2t_keras.inference.translator import Translator
from t2t_keras.models import families


@pytest.mark.parametrize("vocab_type", ["char", "byte"])
def test_the_translator_and_its_pipeline_agree(vocab_type):
    tokenizer = tiny.tokenizer(vocab_type)
    tf.keras.utils.set_random_seed(1)
    model = families.make_model(TransformerConfig(vocab_size=tokenizer.vocab_size, **tiny.MODEL))
    for weight in model.trainable_variables:
        weight.assign(2.5 * weight)  # so that it says different things
    translator = Translator(tokenizer, model, exporting.DECODE, data=DataConfig(max_length=exporting.MAX_LENGTH))
    expected = translator.translate(exporting.LINES)
    assert max(t.num_parts for t in expected) > 3 and len({t.text for t in expected}) > 12
    pipeline = Pipeline(translator, Weights(model), (tokenizer.graph_tokenizer(),) * 2)
    parts = pipeline.parts(tf.constant(exporting.TEXTS))
    sources = [ids for translation in expected for ids in translation.source_ids]
    rows = [row for row, translation in enumerate(expected) for _ in translation.source_ids]
    assert [tuple(ids[:n]) for ids, n in zip(*map(np.array, parts.sentences), strict=True)] == sources
    assert parts.rows.numpy().tolist() == rows
    found = pipeline.search(parts.sentences, only_best=True)
    texts = pipeline.hypotheses(tf.constant(exporting.TEXTS), parts, found, found.scores).texts[:, 0]
    assert [text.decode() for text in texts.numpy()] == [translation.text for translation in expected]

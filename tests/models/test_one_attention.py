"""Training, search, exports and graphs for other runtimes compute equation 1 with the same function."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.config import Config, TransformerConfig
from t2t_keras.export.exported_weights import Weights
from t2t_keras.export.graph_pipeline import Pipeline
from t2t_keras.formats.graphs.token_graphs import TokenGraphs
from t2t_keras.formats.portable_model import PortableModel
from t2t_keras.layers.attention import multi_head
from t2t_keras.training.step import TrainingStep
from tests.export import exporting
from tests.formats import foreign
from tests.inference import tiny

# In `tiny.MODEL`, the encoder layer has one attention, and each of the two decoder layers has two.
ENCODER, DECODER = 1, 4
SOURCE = np.array([[5, 6, 7, 1]], np.int32)


@pytest.fixture
def calls(monkeypatch) -> list[int]:
    """Records each call of the function of equation 1."""
    recorded: list[int] = []
    attention = multi_head.scaled_dot_product_attention

    def record_and_attend(*arguments, **options):
        recorded.append(len(recorded))
        return attention(*arguments, **options)

    monkeypatch.setattr(multi_head, "scaled_dot_product_attention", record_and_attend)
    return recorded


def test_a_training_step(calls):
    step = TrainingStep(tiny.transformer(), Config().train, tf.distribute.get_strategy())
    assert step.row_gradients and len(calls) == ENCODER + DECODER


def test_a_search(calls):
    model = tiny.transformer()
    search = model.start_search(SOURCE, model.encode(SOURCE), 2)
    assert len(calls) == ENCODER
    search.step(tf.constant([3, 4]), search.cache)
    assert len(calls) == ENCODER + DECODER


def test_an_export(calls):
    translator = exporting.translator()
    pipeline = Pipeline(translator, Weights(translator.single_model), (tiny.tokenizer().graph_tokenizer(),) * 2)
    traced = tf.function(lambda texts: pipeline.search(pipeline.parts(texts).sentences, only_best=True))
    traced.get_concrete_function(tf.TensorSpec([None], tf.string))
    assert calls and len(calls) % (ENCODER + DECODER) == 0  # some parts are traced twice


def test_graphs_for_other_runtimes(calls):
    config = TransformerConfig(**{**tiny.MODEL, "vocab_size": 23})
    model = PortableModel(Config(config), foreign.random_weights(config), tiny.tokenizer())
    graphs = TokenGraphs(model, "no format", in_one_file=True)
    calls.clear()
    for function in (graphs.encode, graphs.step):
        function.get_concrete_function()
    assert len(calls) == ENCODER + DECODER

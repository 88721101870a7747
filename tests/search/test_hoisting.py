"""Tensors that depend only on weights are computed outside the loop of a search."""

import dataclasses

import pytest
import tensorflow as tf

from t2t_keras.config import DecodeConfig
from t2t_keras.kernels.contexts import compute_once
from t2t_keras.models import presets
from t2t_keras.models.families import make_model
from t2t_keras.search.hoisting import HoistedWeights
from t2t_keras.search.searcher import Searcher

START = (0, 1.0, 2.0)


def test_a_tensor_is_computed_once_outside_the_loop():
    weight, computed = tf.Variable(3.0), []

    def step(token_ids, cache):
        def compute():
            computed.append(2.0 * weight)
            return computed[-1]

        return token_ids + compute_once("twice", compute), cache + compute_once("twice", compute)

    @tf.function(autograph=False)
    def search():
        hoisted = HoistedWeights().wrap(step)
        return tf.while_loop(lambda count, *_: count < 3, lambda count, *state: (count + 1, *hoisted(*state)), START)

    assert [float(value) for value in search()] == [3, 19, 20]
    (tensor,) = computed
    assert tensor.graph is search.get_concrete_function().graph


@pytest.mark.parametrize(("beam_size", "bfloat16"), [(1, False), (2, True)])
def test_search_steps_do_not_concatenate_or_cast_kernels(beam_size, bfloat16):
    sizes = {"d_model": 8, "d_ff": 16, "num_heads": 2, "vocab_size": 13}
    model = make_model(dataclasses.replace(presets.preset("tiny").model, **sizes))
    model.build()
    searcher = Searcher(model, DecodeConfig(beam_size=beam_size, bfloat16=bfloat16))
    graph = next(iter(searcher._compiled.values())).get_concrete_function().graph
    nodes = [node for function in graph.as_graph_def().library.function for node in function.node_def]
    assert any("ReadVariableOp" in name for node in nodes for name in node.input)  # at least biases
    conversions = [node for node in nodes if node.op in ("ConcatV2", "Cast", "Transpose")]
    assert conversions
    assert not [node.name for node in conversions if any("ReadVariableOp" in name for name in node.input)]

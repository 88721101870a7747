"""Tensors made of weights stand outside of the loop of a search."""

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


def test_a_tensor_is_made_once_in_the_graph_around_the_loop():
    weight, made = tf.Variable(3.0), []

    def step(token_ids, cache):
        def make():
            made.append(2.0 * weight)
            return made[-1]

        return token_ids + compute_once("twice", make), cache + compute_once("twice", make)

    @tf.function(autograph=False)
    def search():
        hoisted = HoistedWeights().wrap(step)
        return tf.while_loop(lambda count, *_: count < 3, lambda count, *state: (count + 1, *hoisted(*state)), START)

    assert [float(each) for each in search()] == [3, 19, 20]
    (tensor,) = made
    assert tensor.graph is search.get_concrete_function().graph


@pytest.mark.parametrize(("beam_size", "bfloat16"), [(1, False), (2, True)])
def test_the_steps_of_a_search_neither_join_nor_cast_kernels(beam_size, bfloat16):
    sizes = {"d_model": 8, "d_ff": 16, "num_heads": 2, "vocab_size": 13}
    model = make_model(dataclasses.replace(presets.preset("tiny").model, **sizes))
    model.build()
    searcher = Searcher(model, DecodeConfig(beam_size=beam_size, bfloat16=bfloat16))
    graph = next(iter(searcher._compiled.values())).get_concrete_function().graph
    nodes = [node for function in graph.as_graph_def().library.function for node in function.node_def]
    assert any("ReadVariableOp" in each for node in nodes for each in node.input)  # biases, if not kernels
    made = [node for node in nodes if node.op in ("ConcatV2", "Cast", "Transpose")]
    assert made
    assert not [node.name for node in made if any("ReadVariableOp" in each for each in node.input)]

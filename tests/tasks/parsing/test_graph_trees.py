"""Trees completed in the graph equal those completed in Python."""

import functools
import random

import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from t2t_keras.tasks.parsing.graph_trees import finished_in_graph, linearised_in_graph
from t2t_keras.tasks.parsing.linear_trees import UNKNOWN
from t2t_keras.tasks.parsing.parsing_task import ParsingTask
from t2t_keras.tasks.parsing.trees import simplified, tree_of_line
from t2t_keras.text.repair import repair
from tests.tasks.parsing.disturbed_trees import random_tree

TOKENS = ["(S", "(NP", "(-LRB-", ")S", ")NP", ")", "(", "other", "", "(N\xa0P", *["a", "b", "c", UNKNOWN, "-LRB-"] * 2]
# Any text, including text that resembles brackets; sources have been repaired.
tokens = st.one_of(st.sampled_from(TOKENS), st.text("()XN\t\n\v\x85\xa0", max_size=4))
outputs = st.one_of(st.text(), st.lists(tokens).map(" ".join))
sources = st.one_of(st.text(), st.lists(st.sampled_from(["a", "(", ":)", "-LRB-", UNKNOWN])).map(" ".join)).map(repair)


@functools.cache
def compiled():
    """Traced once for any number of rows."""
    return tf.function(finished_in_graph, input_signature=[tf.TensorSpec([None], tf.string)] * 2, autograph=False)


def test_trees_equal_those_of_python():
    rng = random.Random(5)
    words = ["a", "b", "c", "(", ")", "f(x)", ":)"]
    sources = [" ".join(rng.choice(words) for _ in range(rng.randrange(7))) for _ in range(3000)]
    outputs = [" ".join(rng.choices(TOKENS, k=rng.randrange(18))) for _ in sources]
    actual = [tree.decode() for tree in compiled()(sources, outputs).numpy()]
    assert actual == [ParsingTask().finish(*pair) for pair in zip(sources, outputs, strict=True)]
    assert len(set(actual)) > 1500


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(sources, outputs), min_size=1, max_size=12))
@example([("a b", "(NP( XX )NP"), ("a b", "(S) XX )"), ("a b", "(N\tP XX )\n"), ("a b", "(S XX )N(P XX")])
def test_any_text_becomes_a_tree_that_can_be_read(pairs):
    finished = [ParsingTask().finish(*pair) for pair in pairs]
    for (source, _), text in zip(pairs, finished, strict=True):
        tree = tree_of_line(text)
        assert str(tree) == text
        assert len(tree.leaves()) == len(source.split(" ")) - source.split(" ").count("")
    actual = compiled()(*(tf.constant(side) for side in zip(*pairs, strict=True)))
    assert [tree.decode() for tree in actual.numpy()] == finished


def test_targets_equal_those_of_python():
    rng = random.Random(3)
    trees = [str(simplified(random_tree(rng))) for _ in range(500)]
    odd = ["(NN dog)", "(A (X a)) (B (X b))", "( (S (X a)))", "", "(TOP)"]
    compiled = tf.function(linearised_in_graph, input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    for references in (trees, odd, ["", ""], []):
        actual = [line.decode() for line in compiled(tf.constant(references, tf.string)).numpy()]
        assert actual == [ParsingTask().target("", reference) for reference in references]


def test_batches_without_tokens_or_rows():
    assert finished_in_graph(tf.constant(["a b", ""]), tf.constant(["", ""])).numpy().tolist() == [
        b"(TOP (XX a) (XX b))",
        b"(TOP)",
    ]
    assert finished_in_graph(tf.constant([""]), tf.constant(["(S )S"])).numpy().tolist() == [b"(TOP)"]
    assert finished_in_graph(tf.zeros([0], tf.string), tf.zeros([0], tf.string)).shape == [0]

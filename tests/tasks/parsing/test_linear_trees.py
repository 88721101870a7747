"""Trees as lines of tokens, and back from whatever such lines hold."""

import itertools
import random

import pytest

from t2t_keras.tasks.parsing.bracket_scores import compared
from t2t_keras.tasks.parsing.linear_trees import finished, linearised
from t2t_keras.tasks.parsing.trees import read_trees, simplified
from t2t_keras.tasks.registry import task
from t2t_keras.text.tokenizer import trained_tokenizer
from tests.tasks.parsing.disturbed_trees import pairs

TOKENS = ["(S", "(NP", ")S", ")NP", "NN", "DT", "XX", "(", ")", "other", "(-LRB-"]


def test_a_tree_is_a_line_of_brackets_and_words():
    ((_, tree),) = read_trees(["(TOP (S (NP (DT The) (NN dog)) (VP (VBZ barks)) (. .)))"])
    assert linearised(tree) == "(S (NP DT NN )NP (VP VBZ )VP . )S"


def test_nothing_is_lost():
    for tree in map(simplified, itertools.chain.from_iterable(pairs(500))):
        again = finished(tree.words(), linearised(tree))
        assert again == tree


@pytest.mark.parametrize(
    ("linear", "expected"),
    [
        ("(S (NP DT NN )NP (VP VBZ", "(TOP (S (NP (DT a) (NN b)) (VP (VBZ c))))"),
        ("(S (NP XX XX )VP XX )S", "(TOP (S (NP (XX a) (XX b)) (XX c)))"),
        (")S )S XX (S XX XX )S )S", "(TOP (XX a) (S (XX b) (XX c)))"),
        ("(S XX XX XX XX XX )S", "(TOP (S (XX a) (XX b) (XX c)))"),
        ("(S (NP NN )NP )S", "(TOP (S (NP (NN a)) (XX b) (XX c)))"),
        ("(S -NONE- NN NN )S", "(TOP (S (XX a) (NN b) (NN c)))"),
        ("(S (NP XX", "(TOP (S (NP (XX a)) (XX b) (XX c)))"),
        ("(S (NP )NP (VP )VP XX XX XX )S (X", "(TOP (S (XX a) (XX b) (XX c)))"),
        ("(S XX )S XX", "(TOP (S (XX a)) (XX b) (XX c))"),
        ("(S what ( ) XX N(N XX", "(TOP (S (what a)) (XX b) (XX c))"),
        ("", "(TOP (XX a) (XX b) (XX c))"),
        ("(S (NP( XX )NP (S) XX (((( XX )S", "(TOP (S (XX a)) (XX b) (XX c))"),
        ("(S (N\tP XX )NP XX )S", "(TOP (S (XX a)) (XX b) (XX c))"),
    ],
)
def test_what_is_damaged_becomes_a_tree(linear, expected):
    assert str(finished(["a", "b", "c"], linear)) == expected


def test_whatever_comes_out_becomes_a_tree_over_the_words():
    rng = random.Random(3)
    for _ in range(2000):
        words = [rng.choice("abc()") for _ in range(rng.randrange(6))]
        tree = finished(words, " ".join(rng.choices(TOKENS, k=rng.randrange(15))))
        assert tree.words() == words
        ((_, again),) = read_trees([str(tree)])
        assert again == tree == finished(words, linearised(tree))
        assert compared(tree, tree).errors == 0


def test_a_reference_becomes_brackets_of_one_token_each():
    parsing = task("parsing")
    ((_, reference),) = parsing.examples(["( (S (NP-SBJ (DT The) (NN dog)) (VP (VBZ barks))) )"], "f")
    assert parsing.target("", reference) == "(S (NP DT NN )NP (VP VBZ )VP )S"
    assert parsing.symbols([reference]) == ["(NP", "(S", "(VP", ")NP", ")S", ")VP", "DT", "NN", "VBZ"]
    symbols = [*parsing.symbols([reference]), "(SBAR"]
    tokenizer = trained_tokenizer(["The dog (NP barks"] * 9 + ["XX XX"] * 9, 290, symbols=symbols)
    pieces = tokenizer.pieces(tokenizer.encode("(S (NP XX )NP (SBAR XX (NPs"))
    assert pieces == ["▁(S", "▁(NP", "▁XX", "▁)NP", "▁(SBAR", "▁XX", "▁(NP", "s"]
    assert tokenizer.decode(tokenizer.encode("a (NPs (x)")) == "a (NPs (x)"

"""Trees as lines of tokens, and the conversion of arbitrary lines to trees."""

import itertools
import random

import pytest

from t2t_keras.tasks.parsing.bracket_scores import compared
from t2t_keras.tasks.parsing.linear_trees import UNKNOWN, finished, linearised, partners
from t2t_keras.tasks.parsing.trees import Tree, read_trees, simplified, transformed
from t2t_keras.tasks.registry import task
from t2t_keras.text.tokenizer import trained_tokenizer
from tests.tasks.parsing.disturbed_trees import pairs

TOKENS = ["(S", "(NP", ")S", ")NP", "NN", "DT", "XX", "(", ")", "other", "(-LRB-"]


def test_a_tree_is_a_line_of_brackets_and_words():
    ((_, tree),) = read_trees(["(TOP (S (NP (DT The) (NN dog)) (VP (VBZ barks)) (. .)))"])
    assert linearised(tree) == "(S (NP The dog )NP (VP barks )VP . )S"


def test_nothing_is_lost_but_parts_of_speech():
    for tree in map(simplified, itertools.chain.from_iterable(pairs(500))):
        untagged = transformed(tree, lambda leaf: Tree(UNKNOWN, word=leaf.word), lambda part: part)
        assert finished(tree.words(), linearised(tree)) == untagged


@pytest.mark.parametrize(
    ("linear", "expected"),
    [
        ("(S (NP a b )NP (VP c", "(TOP (S (NP (XX a) (XX b)) (VP (XX c))))"),
        ("(S (NP a b )VP c )S", "(TOP (S (NP (XX a) (XX b)) (XX c)))"),
        ("(S (NP x y )NP z )S", "(TOP (S (NP (XX a) (XX b)) (XX c)))"),
        (")S )S a (S b c )S )S", "(TOP (XX a) (S (XX b) (XX c)))"),
        ("(S (NP a )NP (PP a )PP (VP b b c )VP )S", "(TOP (S (PP (XX a)) (VP (XX b) (XX c))))"),
        ("(S (NP a )NP (PP x )PP (VP b c )VP )S", "(TOP (S (NP (XX a)) (VP (XX b) (XX c))))"),
        ("(S (NP a )NP (VP c )VP )S", "(TOP (S (NP (XX a) (XX b)) (VP (XX c))))"),
        ("(S (NP (NP b )NP (VP", "(TOP (S (NP (NP (XX a) (XX b) (XX c)))))"),
        ("(S (NP )NP (VP )VP a b c )S (X", "(TOP (S (XX a) (XX b) (XX c)))"),
        ("(S a )S c", "(TOP (S (XX a) (XX b)) (XX c))"),
        ("(S what ( ) b N(N c", "(TOP (S (XX a)) (XX b) (XX c))"),
        ("", "(TOP (XX a) (XX b) (XX c))"),
        ("(S (NP( a )NP (S) c (((( )S", "(TOP (S (XX a) (XX b)) (XX c))"),
        ("(S (N\tP a )NP b )S", "(TOP (S (XX a)) (XX b) (XX c))"),
    ],
)
def test_damaged_lines_become_trees(linear, expected):
    assert str(finished(["a", "b", "c"], linear)) == expected


def test_as_many_written_words_as_possible_stand_for_the_same():
    rng = random.Random(7)

    def most(written, words):
        """Returns the length of the longest common subsequence by its definition."""
        if not written or not words:
            return 0
        rest = max(most(written[1:], words), most(written, words[1:]))
        return max(rest, 1 + most(written[1:], words[1:])) if written[0] == words[0] else rest

    for _ in range(500):
        written, words = (rng.choices("abc", k=rng.randrange(7)) for _ in range(2))
        actual = partners(written, words)
        places = [place for place in actual if place is not None]
        assert places == sorted(set(places)) and len(actual) == len(written)
        assert bool(places) == bool(written and words)
        same = sum(place is not None and words[place] == token for token, place in zip(written, actual, strict=True))
        assert same == most(written, words[: 2 * len(written)])


def test_the_end_of_a_long_text_is_ignored():
    assert partners(["b"], ["a", "x", "b"]) == [1]
    tree = finished(["a"] * 100_000, "(S a a )S")
    assert len(tree.words()) == 100_000 and len(tree.children) == 1


def test_any_output_becomes_a_tree_over_the_words():
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
    ((_, reference),) = parsing.examples(["( (S (NP-SBJ (DT The) (-LRB- -LRB-)) (VP (VBZ barks))) )"], "f")
    assert parsing.target("", reference) == "(S (NP The -LRB- )NP (VP barks )VP )S"
    assert parsing.symbols([reference]) == ["(NP", "(S", "(VP", ")NP", ")S", ")VP", "-LRB-"]
    symbols = [*parsing.symbols([reference]), "(SBAR"]
    tokenizer = trained_tokenizer(["The dog (NP barks"] * 9 + ["XX XX"] * 9, 290, symbols=symbols)
    pieces = tokenizer.pieces(tokenizer.encode("(S (NP XX )NP (SBAR XX (NPs"))
    assert pieces == ["▁(S", "▁(NP", "▁XX", "▁)NP", "▁(SBAR", "▁XX", "▁(NP", "s"]
    assert tokenizer.decode(tokenizer.encode("a (NPs (x)")) == "a (NPs (x)"

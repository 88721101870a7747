"""Bracketed trees: reading, writing and simplification."""

import itertools

import pytest

from t2t_keras.errors import InputError
from t2t_keras.tasks.parsing.parsing_task import ParsingTask
from t2t_keras.tasks.parsing.trees import Tree, leaf, read_trees, simplified
from tests.tasks.parsing.disturbed_trees import pairs


def parse(*lines: str) -> list[Tree]:
    return [tree for _, tree in read_trees(lines, "a.mrg")]


def test_a_tree_is_read_and_written():
    line = "(S (NP (DT The) (NN dog)) (VP (VBZ barks)))"
    (tree,) = parse(line)
    assert tree == Tree("S", (Tree("NP", (leaf("DT", "The"), leaf("NN", "dog"))), Tree("VP", (leaf("VBZ", "barks"),))))
    assert str(tree) == line
    assert tree.words() == ["The", "dog", "barks"]


def test_written_trees_can_be_read():
    for tree in itertools.chain.from_iterable(pairs(300)):
        assert parse(str(tree)) == [tree]


def test_trees_take_several_lines_or_share_one():
    lines = ["( (S", "   (NN a))", "", ")(X (NN b)) (Y", "(NN c))"]
    assert [(number, str(tree)) for number, tree in read_trees(lines)] == [
        (1, "(TOP (S (NN a)))"),
        (4, "(X (NN b))"),
        (4, "(Y (NN c))"),
    ]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["(S (NN a))", "(S (NN b)"], "a.mrg, line 2: 1 brackets of this tree are not closed"),
        (["(S (NN a)))"], "a.mrg, line 1: a closing bracket without an opening one"),
        (["", "a (S (NN a))"], "a.mrg, line 2: 'a' is outside all trees"),
        (["(S (NN a b))"], "a.mrg, line 1: 'b' is not the only content of its bracket"),
        (["(S (NN a) b)"], "a.mrg, line 1: 'b' is not the only content of its bracket"),
        (["(S (NN a (NN b)))"], "a.mrg, line 1: 'a' is not the only content of its bracket"),
        (["(S", "((NN a)))"], "a.mrg, line 2: a bracket without a label"),
    ],
)
def test_invalid_trees_are_rejected_with_their_line(lines, message):
    with pytest.raises(InputError) as caught:
        parse(*lines)
    assert str(caught.value) == message


def test_simple_trees_have_no_traces_and_no_functions():
    (tree,) = parse("( (S-1 (NP-SBJ=2 (-NONE- *)) (NP (NN a)) (VP (VB b) (S (NP (-NONE- *)))) (-LRB- -LRB-)) )")
    assert str(simplified(tree)) == "(TOP (S (NP (NN a)) (VP (VB b)) (-LRB- -LRB-)))"
    assert simplified(tree).words() == ["a", "b", "("]
    assert str(simplified(parse("(S (-NONE- *))")[0])) == "(TOP)"


def test_words_are_those_of_a_repaired_text():
    tree = Tree("S", (leaf("NN", "a\xa0b"), leaf("NN", "\u200b"), leaf("-LSB-", "-LSB-"), leaf("NN", ")")))
    assert simplified(tree).words() == ["a_b", "_", "[", ")"]
    assert str(simplified(tree)) == "(TOP (S (NN a_b) (NN _) (-LSB- [) (NN -RRB-)))"


def test_round_brackets_within_words_are_escaped():
    tree = Tree("S", (leaf("NN", "f(x)"), leaf("NN", ":)"), leaf("NN", "-LRB-a")))
    assert str(tree) == "(S (NN f-LRB-x-RRB-) (NN :-RRB-) (NN -LRB-a))"
    assert parse(str(tree)) == [tree] and tree.words() == ["f(x)", ":)", "(a"]
    assert simplified(tree).words() == tree.words()


def test_sentences_with_other_words_are_reported():
    references = ["(TOP (S (NN a)))"] * 4
    hypotheses = ["(TOP (S (NN a)))", "(TOP (S (NN b)))", "(TOP)", "(TOP (S (NN c)))"]
    assert ParsingTask().report(hypotheses, references) == (
        "\n2 trees with words other than the reference's, the first one is number 2\n"
        "1 trees with no words, the first one is number 3\n"
    )
    assert ParsingTask().report(["(TOP)", references[0]], ["(TOP)", references[0]]) == ""


def test_where_trees_take_a_line_each_a_line_is_an_output():
    lines = ["(S (NN a))", "", "(())", "(X (NN b)) (Y (NN c))"]
    assert ParsingTask().outputs(lines, "f") == [
        "(TOP (S (NN a)))",
        "(TOP)",
        "(TOP)",
        "(TOP (X (NN b)) (Y (NN c)))",
    ]
    assert ParsingTask().outputs(["(S", "(NN a))", "", "(X (NN b))"], "f") == ["(TOP (S (NN a)))", "(TOP (X (NN b)))"]
    with pytest.raises(InputError, match="f, line 2: 'x' is not the only content of its bracket"):
        ParsingTask().outputs(["", "(S (NN a) x)"], "f")


def test_trees_without_words_are_no_examples():
    with pytest.raises(InputError, match="f, line 2: the tree has no words"):
        list(ParsingTask().examples(["(S (NN a))", "(S (-NONE- *))"], "f"))


def test_trees_of_any_depth():
    text = "(S " * 5000 + "(NN a)" + ")" * 5000
    (tree,) = parse(text)
    assert str(simplified(tree)) == f"(TOP {text.replace('S (NN', 'S (NN')})"
    assert simplified(tree).words() == ["a"]

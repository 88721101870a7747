"""Labelled brackets of trees compared, as EVALB does.

Reference: Sekine and Collins, EVALB, 1997; Black et al., "A Procedure for Quantitatively Comparing the Syntactic
Coverage of English Grammars", 1991.
"""

import collections
import dataclasses
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from t2t_keras.tasks.parsing.trees import TOP, Tree, transformed


@dataclasses.dataclass(frozen=True)
class Parameters:
    """What EVALB reads from its parameter file; the defaults are those of `COLLINS.prm`.

    Attributes:
        deleted: labels: words of such parts of speech go before positions are counted; such constituents do not count.
        same_labels: labels that count as others.
        same_words: words that count as others.
    """

    deleted: frozenset[str] = frozenset({TOP, "-NONE-", ",", ":", "``", "''", "."})
    same_labels: Mapping[str, str] = dataclasses.field(default_factory=lambda: {"PRT": "ADVP"})
    same_words: Mapping[str, str] = dataclasses.field(default_factory=dict)


class _Bracket(NamedTuple):
    label: str
    start: int
    end: int


@dataclasses.dataclass(frozen=True)
class BracketCounts:
    """What trees have in common with their references, summed over sentences.

    Attributes:
        sentences: compared, of which those in error and those skipped are no part of the other counts.
        errors: sentences whose words differ from the reference's, in number or as words.
        skipped: trees without a word.
        matched: brackets of the trees that are in their references.
        reference: brackets of the references.
        tree: brackets of the trees.
        exact: sentences all of whose brackets match.
        unscored_reference: brackets of the references of errors and skipped trees.
        unscored_tree: brackets of the trees in error.
        empty: skipped trees whose references have no word that counts either.
    """

    sentences: int = 0
    errors: int = 0
    skipped: int = 0
    matched: int = 0
    reference: int = 0
    tree: int = 0
    exact: int = 0
    unscored_reference: int = 0
    unscored_tree: int = 0
    empty: int = 0

    def __add__(self, other: "BracketCounts") -> "BracketCounts":
        sums = {name: value + getattr(other, name) for name, value in vars(self).items()}
        return BracketCounts(**sums)

    @property
    def valid(self) -> int:
        """Sentences that are neither in error nor skipped."""
        return self.sentences - self.errors - self.skipped

    def scores(self, strict: bool = True) -> tuple[float, float, float, float]:
        """Precision, recall, F1 and exact match in percent.

        With `strict` a sentence in error or skipped is wrong with all its brackets, unless its reference has no word
        that counts either; EVALB leaves them all out.
        """
        tree = self.tree + self.unscored_tree * strict
        reference = self.reference + self.unscored_reference * strict
        exact = _percent(self.exact, self.sentences - self.empty if strict else self.valid)
        precision, recall = _percent(self.matched, tree), _percent(self.matched, reference)
        f1 = 2 * precision * recall / (precision + recall) if self.matched else 0.0
        return precision, recall, f1, exact


def bracket_counts(
    trees: Iterable[Tree], references: Iterable[Tree], parameters: Parameters | None = None
) -> BracketCounts:
    """Compares each tree with its reference; a ValueError if there are not as many."""
    total = BracketCounts()
    for tree, reference in zip(trees, references, strict=True):
        total += compared(tree, reference, parameters)
    return total


def compared(tree: Tree, reference: Tree, parameters: Parameters | None = None) -> BracketCounts:
    """The counts of one sentence. Trees are compared as they are, but for what the parameters delete."""
    parameters = parameters or Parameters()
    leaves, brackets = _leaves_and_brackets(tree, parameters)
    expected_leaves, expected = _leaves_and_brackets(reference, parameters)
    if not leaves:
        empty = int(not expected_leaves)
        return BracketCounts(sentences=1, skipped=1, unscored_reference=len(expected), empty=empty)
    if [leaf.word for leaf in leaves] != [leaf.word for leaf in expected_leaves]:
        return BracketCounts(sentences=1, errors=1, unscored_reference=len(expected), unscored_tree=len(brackets))
    matched = (collections.Counter(brackets) & collections.Counter(expected)).total()
    return BracketCounts(
        sentences=1,
        matched=matched,
        reference=len(expected),
        tree=len(brackets),
        exact=int(matched == len(expected) == len(brackets)),
    )


def _leaves_and_brackets(root: Tree, parameters: Parameters) -> tuple[list[Tree], list[_Bracket]]:
    """The words that count, and the constituents that count with the words they begin at and end before."""
    labels, words = parameters.same_labels, parameters.same_words
    leaves: list[Tree] = []
    brackets: list[_Bracket] = []
    waiting: list[tuple[Tree, int | None]] = [(root, None)]
    while waiting:
        tree, start = waiting.pop()
        if tree.word is not None:
            if tree.label not in parameters.deleted:
                leaves.append(Tree(labels.get(tree.label, tree.label), word=words.get(tree.word, tree.word)))
        elif start is None:
            waiting.append((tree, len(leaves)))
            waiting += [(child, None) for child in reversed(tree.children)]
        else:
            label = tree.label.split("-")[0].split("=")[0]
            if start < len(leaves) and label not in parameters.deleted:
                brackets.append(_Bracket(labels.get(label, label), start, len(leaves)))
    return leaves, brackets


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0


def with_tags(tree: Tree, reference: Tree) -> Tree:
    """The tree with the reference's parts of speech, if it has as many words."""
    tags = [leaf.label for leaf in reference.leaves()]
    if len(tags) != len(tree.leaves()):
        return tree
    remaining = iter(tags)
    return transformed(tree, lambda leaf: dataclasses.replace(leaf, label=next(remaining)), lambda part: part) or tree

"""Scores of constituency trees: compares labelled brackets as EVALB does.

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
    """The parameters of EVALB; the defaults are those of `COLLINS.prm`.

    Attributes:
        deleted: labels to ignore. Words with such parts of speech are removed before positions are counted, and
            constituents with such labels are not scored.
        same_labels: labels that are equivalent to others.
        same_words: words that are equivalent to others.
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
    """The number of brackets that trees and their references have in common, summed over sentences.

    Attributes:
        sentences: compared sentences.
        errors: sentences whose words differ from those of the reference.
        skipped: sentences whose tree has no words.
        matched: brackets that a tree and its reference have in common. As in `reference`, `tree` and `exact`, sentences
            in error and skipped sentences do not count.
        reference: brackets of the references.
        tree: brackets of the trees.
        exact: sentences whose brackets all match.
        unscored_reference: brackets of the references of sentences in error and skipped sentences.
        unscored_tree: brackets of the trees of sentences in error.
        empty: skipped sentences whose reference has no words to score either.
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
        """The number of sentences that are neither in error nor skipped."""
        return self.sentences - self.errors - self.skipped

    def scores(self, strict: bool = True) -> tuple[float, float, float, float]:
        """Returns precision, recall, F1 and exact match in percent.

        Args:
            strict: whether all brackets of sentences in error and of skipped sentences count as wrong, except for
                skipped sentences whose reference has no words either. Otherwise, these sentences are left out, as in
                EVALB.
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
    """Compares each tree with its reference; raises a ValueError if their numbers differ."""
    total = BracketCounts()
    for tree, reference in zip(trees, references, strict=True):
        total += compared(tree, reference, parameters)
    return total


def compared(tree: Tree, reference: Tree, parameters: Parameters | None = None) -> BracketCounts:
    """Returns the counts of one sentence. Only the labels in `parameters.deleted` are removed from the trees."""
    parameters = parameters or Parameters()
    leaves, brackets = _leaves_and_brackets(tree, parameters)
    expected_leaves, expected_brackets = _leaves_and_brackets(reference, parameters)
    if not leaves:
        empty = int(not expected_leaves)
        return BracketCounts(sentences=1, skipped=1, unscored_reference=len(expected_brackets), empty=empty)
    if [leaf.word for leaf in leaves] != [leaf.word for leaf in expected_leaves]:
        return BracketCounts(
            sentences=1, errors=1, unscored_reference=len(expected_brackets), unscored_tree=len(brackets)
        )
    num_matches = (collections.Counter(brackets) & collections.Counter(expected_brackets)).total()
    return BracketCounts(
        sentences=1,
        matched=num_matches,
        reference=len(expected_brackets),
        tree=len(brackets),
        exact=int(num_matches == len(expected_brackets) == len(brackets)),
    )


def _leaves_and_brackets(root: Tree, parameters: Parameters) -> tuple[list[Tree], list[_Bracket]]:
    """Returns the words and the brackets to score, whose positions count only these words."""
    labels, words = parameters.same_labels, parameters.same_words
    leaves: list[Tree] = []
    brackets: list[_Bracket] = []
    stack: list[tuple[Tree, int | None]] = [(root, None)]
    while stack:
        tree, start = stack.pop()
        if tree.word is not None:
            if tree.label not in parameters.deleted:
                leaves.append(Tree(labels.get(tree.label, tree.label), word=words.get(tree.word, tree.word)))
        elif start is None:
            stack.append((tree, len(leaves)))
            stack += [(child, None) for child in reversed(tree.children)]
        else:
            label = tree.label.split("-")[0].split("=")[0]
            if start < len(leaves) and label not in parameters.deleted:
                brackets.append(_Bracket(labels.get(label, label), start, len(leaves)))
    return leaves, brackets


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0


def with_tags(tree: Tree, reference: Tree) -> Tree:
    """Returns the tree with the parts of speech of the reference, or unchanged if their numbers of words differ."""
    tags = [leaf.label for leaf in reference.leaves()]
    if len(tags) != len(tree.leaves()):
        return tree
    remaining = iter(tags)
    return transformed(tree, lambda leaf: dataclasses.replace(leaf, label=next(remaining)), lambda part: part) or tree

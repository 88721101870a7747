"""Random trees, and copies with every kind of change that scores must detect; deterministic in the seed."""

import itertools
import random

from t2t_keras.tasks.parsing.trees import TOP, Tree

_LABELS = ["S", "NP", "VP", "PP", "ADVP", "PRT", "SBAR", "NP-SBJ", "NP-SBJ-1", "S=2", "X"]
_TAGS = ["NN", "VB", "DT", "IN", ",", ".", ":", "``", "''", "-NONE-", "PRT", "ADVP", "-LRB-"]
_WORDS = ["the", "dog", "barks", ",", ".", "*", "at", "-LRB-", "night"]


def random_tree(rng: random.Random, depth: int = 0) -> Tree:
    """Returns a constituent of up to five levels, with unary chains."""
    count = rng.choice([1, 1, 2, 3]) if depth else rng.choice([1, 2, 3, 4])
    deeper = 0.9 if depth < 1 else 0.55 if depth < 4 else 0.0
    parts = [random_tree(rng, depth + 1) if rng.random() < deeper else _word(rng) for _ in range(count)]
    return Tree(rng.choice(_LABELS), tuple(parts))


def _word(rng: random.Random) -> Tree:
    return Tree(rng.choice(_TAGS), word=rng.choice(_WORDS))


def _somewhere(rng: random.Random, tree: Tree, change) -> Tree:
    """Applies a change to a random constituent."""
    inner = [index for index, child in enumerate(tree.children) if child.word is None]
    if not inner or rng.random() < 0.3:
        return change(tree)
    chosen = rng.choice(inner)
    children = list(tree.children)
    children[chosen] = _somewhere(rng, children[chosen], change)
    return Tree(tree.label, tuple(children))


def disturb(rng: random.Random, tree: Tree) -> Tree:
    """Returns the tree with one change or none."""

    def relabelled(part: Tree) -> Tree:
        return Tree(rng.choice(_LABELS), part.children)

    def chained(part: Tree) -> Tree:
        return Tree(part.label, (Tree(rng.choice([part.label, *_LABELS]), part.children),))

    def flattened(part: Tree) -> Tree:
        return Tree(part.label, tuple(grand for child in part.children for grand in child.children or (child,)))

    def grouped(part: Tree) -> Tree:
        start = rng.randrange(len(part.children) + 1)
        end = rng.randint(start, len(part.children))  # may enclose nothing
        inside = Tree(rng.choice(_LABELS), part.children[start:end])
        return Tree(part.label, (*part.children[:start], inside, *part.children[end:]))

    def without_one(part: Tree) -> Tree:
        place = rng.randrange(max(1, len(part.children)))
        return Tree(part.label, part.children[:place] + part.children[place + 1 :])

    def with_one_more(part: Tree) -> Tree:
        return Tree(part.label, (*part.children, _word(rng)))

    def other_words(part: Tree) -> Tree:
        return Tree(part.label, tuple(child if child.word is None else _word(rng) for child in part.children))

    def other_tags(part: Tree) -> Tree:
        retagged = (Tree(rng.choice(_TAGS), child.children, child.word) for child in part.children)
        return Tree(
            part.label, tuple(new if new.word else old for new, old in zip(retagged, part.children, strict=True))
        )

    def moved(part: Tree) -> Tree:
        """Moves the first word of a constituent to the previous one, so that brackets cross."""
        for place, (one, other) in enumerate(itertools.pairwise(part.children)):
            if one.word is None and len(other.children) > 1:
                longer = Tree(one.label, (*one.children, other.children[0]))
                shorter = Tree(other.label, other.children[1:])
                return Tree(part.label, (*part.children[:place], longer, shorter, *part.children[place + 2 :]))
        return part

    if rng.random() < 0.05:
        return rng.choice([tree, Tree(TOP, (tree,)), Tree(TOP), random_tree(rng)])
    changes = [
        relabelled,
        chained,
        flattened,
        grouped,
        moved,
        other_tags,
        relabelled,
        chained,
        flattened,
        grouped,
        moved,
    ]
    return _somewhere(rng, tree, rng.choice([*changes, without_one, with_one_more, other_words]))


def pairs(count: int, seed: int = 1) -> list[tuple[Tree, Tree]]:
    """Returns references, and trees to compare with them, each changed up to four times."""
    rng = random.Random(seed)
    tree_pairs = []
    for _ in range(count):
        reference = tree = random_tree(rng)
        for _ in range(rng.choice([1, 2, 3, 4])):
            tree = disturb(rng, tree)
        tree_pairs.append((reference, tree))
    return tree_pairs

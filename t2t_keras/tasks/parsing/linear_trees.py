"""Trees as lines of tokens that a model can write, and trees from whatever it wrote.

Reference: Vinyals et al., "Grammar as a Foreign Language", 2015; section 6.3 of "Attention Is All You Need". There each
word is "XX", whatever its part of speech; here it is its part of speech, since a model that need not know which word
comes next loses count of them.
"""

import re
from collections.abc import Sequence

from t2t_keras.tasks.parsing.trees import NAME, TOP, TRACE, Tree, leaf

UNKNOWN = "XX"  # the part of speech of a word that a model left out
OPENING = rf"\({NAME}"  # a regular expression of the tokens that open a constituent


def linearised(tree: Tree) -> str:
    """A tree without its `TOP`, depth first, each word as its part of speech: "(S (NP DT NN )NP (VP VBZ )VP )S"."""
    tokens: list[str] = []
    waiting: list[Tree | str] = list(reversed(tree.children if tree.label == TOP else (tree,)))
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            tokens.append(part)
        elif part.word is not None:
            tokens.append(part.label)
        else:
            tokens.append(f"({part.label}")
            waiting += [f"){part.label}", *reversed(part.children)]
    return " ".join(tokens)


def finished(words: Sequence[str], linear: str) -> Tree:
    """The tree over these words that a linearised tree, perhaps a damaged one, comes closest to.

    A closing bracket closes the innermost constituent whatever its label says, and none does so where none is open.
    Constituents that remain open close at the end; those without words are left out, and so are tokens that are
    neither brackets nor parts of speech. Words beyond the sentence's are left out. Those that are missing go to the end
    of the last outermost constituent; their parts of speech are `UNKNOWN`.
    """
    open_parts: list[tuple[str, list[Tree]]] = [(TOP, [])]
    remaining = iter(words)
    for token in linear.split(" "):
        if re.fullmatch(NAME, token):
            word = next(remaining, None)
            if word is not None:
                open_parts[-1][1].append(leaf(UNKNOWN if token == TRACE else token, word))
        elif re.fullmatch(OPENING, token):
            open_parts.append((token[1:], []))
        elif token.startswith(")") and len(open_parts) > 1:
            _close(open_parts)
    while len(open_parts) > 1:
        _close(open_parts)
    parts = open_parts[0][1]
    missing = tuple(leaf(UNKNOWN, word) for word in remaining)
    if missing and parts and parts[-1].word is None:
        parts[-1] = Tree(parts[-1].label, (*parts[-1].children, *missing))
    else:
        parts += missing
    return Tree(TOP, tuple(parts))


def _close(open_parts: list[tuple[str, list[Tree]]]) -> None:
    label, children = open_parts.pop()
    if children:
        open_parts[-1][1].append(Tree(label, tuple(children)))

"""Trees as lines of tokens that a model can write, and trees from whatever it wrote.

Reference: Vinyals et al., "Grammar as a Foreign Language", 2015; section 6.3 of "Attention Is All You Need".
"""

import re
from collections.abc import Sequence

from t2t_keras.tasks.parsing.trees import NAME, TOP, Tree, leaf

WORD = "XX"  # stands for a word, whatever its part of speech
OPENING = rf"\({NAME}"  # a regular expression of the tokens that open a constituent


def linearised(tree: Tree) -> str:
    """A tree without its `TOP`, depth first: "(S (NP XX XX )NP (VP XX )VP )S"."""
    tokens: list[str] = []
    waiting: list[Tree | str] = list(reversed(tree.children if tree.label == TOP else (tree,)))
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            tokens.append(part)
        elif part.word is not None:
            tokens.append(WORD)
        else:
            tokens.append(f"({part.label}")
            waiting += [f"){part.label}", *reversed(part.children)]
    return " ".join(tokens)


def finished(words: Sequence[str], linear: str) -> Tree:
    """The tree over these words that a linearised tree, perhaps a damaged one, comes closest to.

    A closing bracket closes the innermost constituent whatever its label says, and none does so where none is open.
    Constituents that remain open close at the end; those without words are left out, and so are tokens that are
    neither brackets nor words. Words beyond the sentence's are left out. Those that are missing go to the end of the
    last outermost constituent. The parts of speech are all `WORD`.
    """
    open_parts: list[tuple[str, list[Tree]]] = [(TOP, [])]
    remaining = iter(words)
    for token in linear.split(" "):
        if token == WORD:
            word = next(remaining, None)
            if word is not None:
                open_parts[-1][1].append(leaf(WORD, word))
        elif re.fullmatch(OPENING, token):
            open_parts.append((token[1:], []))
        elif token.startswith(")") and len(open_parts) > 1:
            _close(open_parts)
    while len(open_parts) > 1:
        _close(open_parts)
    parts = open_parts[0][1]
    missing = tuple(leaf(WORD, word) for word in remaining)
    if missing and parts and parts[-1].word is None:
        parts[-1] = Tree(parts[-1].label, (*parts[-1].children, *missing))
    else:
        parts += missing
    return Tree(TOP, tuple(parts))


def _close(open_parts: list[tuple[str, list[Tree]]]) -> None:
    label, children = open_parts.pop()
    if children:
        open_parts[-1][1].append(Tree(label, tuple(children)))

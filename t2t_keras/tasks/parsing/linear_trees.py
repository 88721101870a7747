"""Trees as lines of tokens that a model can write, and trees from whatever it wrote.

Reference: Vinyals et al., "Grammar as a Foreign Language", 2015; section 6.3 of "Attention Is All You Need". There each
word is "XX"; here the model copies it, since one that need not know which word comes next loses count of them
(docs/tables_measured.md, Table 4, has the difference).
"""

import re
from collections.abc import Sequence

from t2t_keras.tasks.parsing.trees import NAME, TOP, Tree, leaf

UNKNOWN = "XX"  # the part of speech of each word, since a model writes none
OPENING = rf"\({NAME}"  # a regular expression of the tokens that open a constituent


def linearised(tree: Tree) -> str:
    """A tree without its `TOP` and parts of speech, depth first: "(S (NP The dog )NP (VP barks )VP )S"."""
    tokens: list[str] = []
    waiting: list[Tree | str] = list(reversed(tree.children if tree.label == TOP else (tree,)))
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            tokens.append(part)
        elif part.word is not None:
            tokens.append(part.word)
        else:
            tokens.append(f"({part.label}")
            waiting += [f"){part.label}", *reversed(part.children)]
    return " ".join(tokens)


def finished(words: Sequence[str], linear: str) -> Tree:
    """The tree over these words that a linearised tree, perhaps a damaged one, comes closest to.

    The written words are laid along the sentence's (`partners`), since a model may have left one out or have written it
    twice. One that has no partner is left out. A word of the sentence that none stands for goes behind the word before
    it, and those at the beginning in front of the first that one stands for; all are outermost if no word was written.

    A closing bracket closes the innermost constituent whatever its label says, and none does so where none is open.
    Constituents that remain open close at the end; those without words are left out, and so are tokens that are
    neither brackets nor words. Parts of speech are `UNKNOWN`.
    """
    leaves = [leaf(UNKNOWN, word) for word in words]
    tokens = linear.split(" ")
    written = [token for token in tokens if re.fullmatch(NAME, token)]
    places = partners(written, [each.word or "" for each in leaves])
    starts = [place for place in places if place is not None]
    ends = iter([*starts[1:], len(leaves)])
    open_parts: list[tuple[str, list[Tree]]] = [(TOP, [])]
    placed, remaining = 0, iter(places)
    for token in tokens:
        if re.fullmatch(NAME, token):
            if next(remaining) is not None:
                end = next(ends)
                open_parts[-1][1].extend(leaves[placed:end])
                placed = end
        elif re.fullmatch(OPENING, token):
            open_parts.append((token[1:], []))
        elif token.startswith(")") and len(open_parts) > 1:
            _close(open_parts)
    while len(open_parts) > 1:
        _close(open_parts)
    return Tree(TOP, (*open_parts[0][1], *leaves[placed:]))


def partners(written: Sequence[str], words: Sequence[str]) -> list[int | None]:
    """For each written word the place of the word that it stands for, or None; places rise.

    As many as possible stand for a word that is the same; others stand for another word between those, the last ones
    first. Words beyond twice as many as were written are not looked at, so that a short output to an endless text costs
    little.
    """
    words = words[: 2 * len(written)]
    # changes[i][j]: of the first i that were written to the first j words; one that is replaced counts as two.
    changes = [list(range(len(words) + 1))]
    for count, token in enumerate(written, 1):
        above, row = changes[-1], [count]
        for place, word in enumerate(words):
            row.append(min(above[place] + 2 * (token != word), above[place + 1] + 1, row[place] + 1))
        changes.append(row)
    found: list[int | None] = [None] * len(written)
    i, j = len(written), len(words)
    while i and j:
        if changes[i][j] == changes[i - 1][j - 1] + 2 * (written[i - 1] != words[j - 1]):
            i, j = i - 1, j - 1
            found[i] = j
        elif changes[i][j] == changes[i - 1][j] + 1:
            i -= 1
        else:
            j -= 1
    return found


def _close(open_parts: list[tuple[str, list[Tree]]]) -> None:
    label, children = open_parts.pop()
    if children:
        open_parts[-1][1].append(Tree(label, tuple(children)))

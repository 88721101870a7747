"""Converts trees to linearised trees, which a model can write, and its outputs back to trees.

In the references, each word is replaced with "XX". Here, the model copies the words. Otherwise, it does not need to
know which word comes next, and loses count of them (docs/tables_measured.md, Table 4, shows the difference).

Reference: Vinyals et al., "Grammar as a Foreign Language", 2015; section 6.3 of "Attention Is All You Need".
"""

import re
from collections.abc import Sequence

from t2t_keras.tasks.parsing.trees import NAME, TOP, Tree, leaf

UNKNOWN = "XX"  # the part of speech of all words, because a model writes none
OPENING = rf"\({NAME}"  # a regular expression that matches tokens that open a constituent


def linearised(tree: Tree) -> str:
    """Linearises a tree, without its `TOP` and parts of speech: "(S (NP The dog )NP (VP barks )VP )S"."""
    tokens: list[str] = []
    stack: list[Tree | str] = list(reversed(tree.children if tree.label == TOP else (tree,)))
    while stack:
        part = stack.pop()
        if isinstance(part, str):
            tokens.append(part)
        elif part.word is not None:
            tokens.append(part.word)
        else:
            tokens.append(f"({part.label}")
            stack += [f"){part.label}", *reversed(part.children)]
    return " ".join(tokens)


def finished(words: Sequence[str], linear: str) -> Tree:
    """Converts a linearised tree, which may be damaged, to a tree over the given words.

    The written words are aligned with the words of the sentence (`partners`), because a model may omit or repeat words.
    Written words without a partner are dropped. A word of the sentence that was not written goes after the word before
    it, and at the beginning of a sentence in front of the first written word. If no word was written, all words go
    directly below `TOP`.

    A closing bracket closes the innermost open constituent, regardless of its label, and is dropped if none is open.
    Constituents that are still open at the end are closed. Constituents without words are dropped, and so are tokens
    that are neither brackets nor words. Parts of speech are `UNKNOWN`.
    """
    leaves = [leaf(UNKNOWN, word) for word in words]
    tokens = linear.split(" ")
    output_words = [token for token in tokens if re.fullmatch(NAME, token)]
    places = partners(output_words, [each.word or "" for each in leaves])
    starts = [place for place in places if place is not None]
    ends = iter([*starts[1:], len(leaves)])
    open_parts: list[tuple[str, list[Tree]]] = [(TOP, [])]
    next_leaf, remaining = 0, iter(places)
    for token in tokens:
        if re.fullmatch(NAME, token):
            if next(remaining) is not None:
                end = next(ends)
                open_parts[-1][1].extend(leaves[next_leaf:end])
                next_leaf = end
        elif re.fullmatch(OPENING, token):
            open_parts.append((token[1:], []))
        elif token.startswith(")") and len(open_parts) > 1:
            _close(open_parts)
    while len(open_parts) > 1:
        _close(open_parts)
    return Tree(TOP, (*open_parts[0][1], *leaves[next_leaf:]))


def partners(output_words: Sequence[str], words: Sequence[str]) -> list[int | None]:
    """Aligns written words with the words of a sentence by their edit distance.

    As many written words as possible are aligned with an equal word. Between these, written words are aligned with
    unequal words, from the last one backwards. Only the first 2 * len(output_words) words of the sentence are
    considered, so that a short output for a very long text costs little.

    Returns:
        For each written word, the index of its partner in the sentence, or None. The indices increase.
    """
    words = words[: 2 * len(output_words)]
    # changes[i][j] is the distance of the first i written words to the first j words; a replacement counts as two.
    changes = [list(range(len(words) + 1))]
    for count, token in enumerate(output_words, 1):
        previous_row, row = changes[-1], [count]
        for place, word in enumerate(words):
            row.append(min(previous_row[place] + 2 * (token != word), previous_row[place + 1] + 1, row[place] + 1))
        changes.append(row)
    matches: list[int | None] = [None] * len(output_words)
    i, j = len(output_words), len(words)
    while i and j:
        if changes[i][j] == changes[i - 1][j - 1] + 2 * (output_words[i - 1] != words[j - 1]):
            i, j = i - 1, j - 1
            matches[i] = j
        elif changes[i][j] == changes[i - 1][j] + 1:
            i -= 1
        else:
            j -= 1
    return matches


def _close(open_parts: list[tuple[str, list[Tree]]]) -> None:
    label, children = open_parts.pop()
    if children:
        open_parts[-1][1].append(Tree(label, tuple(children)))

"""Constituency trees: reads and writes them in brackets, and simplifies them for training."""

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator

from t2t_keras.errors import InputError
from t2t_keras.text.repair import repair

TOP = "TOP"  # the bracket around a whole tree
_TOPS = (TOP, "ROOT", "S1")  # names of this bracket in treebanks and in the outputs of other parsers
TRACE = "-NONE-"  # the tag of traces, which are not in the text

NAME = r"[^ \t\r\n\f\v()]+"  # a regular expression that matches labels and words
_ATOM = re.compile(rf"[()]|{NAME}")
# The escapes of brackets that are words in the Penn Treebank. Only round brackets need to be escaped here.
_BRACKETS = {"-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}
ROUND = {"-LRB-": "(", "-RRB-": ")"}


@dataclasses.dataclass(frozen=True)
class Tree:
    """A constituent, or a word with its part of speech.

    Attributes:
        label: label of the constituent, or the part of speech.
        children: constituents and words, in order; empty for a word.
        word: the word, as treebanks spell it; None for a constituent.
    """

    label: str
    children: tuple["Tree", ...] = ()
    word: str | None = None

    def leaves(self) -> list["Tree"]:
        """Returns the words with their parts of speech, in order."""
        result, stack = [], [self]
        while stack:
            tree = stack.pop()
            if tree.word is not None:
                result.append(tree)
            stack.extend(reversed(tree.children))
        return result

    def words(self) -> list[str]:
        """Returns the words as text spells them: "(" for "-LRB-"."""
        return [_unescape(leaf.word or "") for leaf in self.leaves()]

    def __str__(self) -> str:
        """Returns the tree in brackets, on one line."""
        pieces: list[str] = []
        stack: list[Tree | str] = [self]
        while stack:
            part = stack.pop()
            if isinstance(part, str):
                pieces.append(part)
            elif part.word is not None:
                pieces.append(f" ({part.label} {part.word})")
            else:
                pieces.append(f" ({part.label}")
                stack += [")", *reversed(part.children)]
        return "".join(pieces).lstrip()


def leaf(part_of_speech: str, word: str) -> Tree:
    """Returns the tree of a word, which is spelled as in text, and its part of speech."""
    for escaped, bracket in ROUND.items():
        word = word.replace(bracket, escaped)
    return Tree(part_of_speech, word=word)


def _unescape(word: str) -> str:
    """Unescapes round brackets anywhere in a word of a treebank, and other brackets if they are the whole word."""
    for escaped, bracket in ROUND.items():
        word = word.replace(escaped, bracket)
    return _BRACKETS.get(word, word)


def read_trees(lines: Iterable[str], source: str = "", first: int = 1) -> Iterator[tuple[int, Tree]]:
    """Yields trees in brackets, each with the number of the line where it begins.

    A tree may extend over several lines. If its outermost bracket has no label, as in the Penn Treebank, the label is
    `TOP`.

    Args:
        lines: the lines.
        source: name of the file, for messages, which then also have the line; "" for none.
        first: number of the first line.

    Raises:
        InputError: brackets are not balanced, there is text outside of them, a bracket other than the outermost one has
            no label, or a bracket has a word and something else.
    """
    reader = _Reader(source)
    for number, line in enumerate(lines, first):
        for match in _ATOM.finditer(line):
            tree = reader.read(match[0], number)
            if tree is not None:
                yield reader.began, tree
    reader.end()


def tree_of_line(line: str, source: str = "", number: int = 1) -> Tree:
    """Reads all trees of a line, and returns them below a single `TOP`, which has no children for a blank line.

    Args:
        line: the line.
        source: name of the file, for messages.
        number: number of the line, for messages.

    Raises:
        InputError: see `read_trees`.
    """
    trees = tuple(tree for _, tree in read_trees([line], source, number))
    return trees[0] if len(trees) == 1 and trees[0].label == TOP and trees[0].word is None else Tree(TOP, trees)


class _Reader:
    """Builds trees from brackets, labels and words.

    Attributes:
        began: number of the line where the current tree begins.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self.began = self._line = 1
        self._open: list[list] = []  # for each open bracket, its label or None, and its contents

    def read(self, atom: str, line: int) -> Tree | None:
        """Reads the next bracket, label or word; returns a tree if it is complete."""
        self._line = line
        if atom == "(":
            if not self._open:
                self.began = line
            self._open.append([None, []])
            return None
        if not self._open:
            raise self._error(
                "a closing bracket without an opening one" if atom == ")" else f"{atom!r} is outside all trees"
            )
        if atom == ")":
            return self._close()
        label, children = self._open[-1]
        if label is None and not children:
            self._open[-1][0] = atom
        elif children:
            raise self._error(f"{atom!r} is not the only content of its bracket")
        else:
            children.append(atom)
        return None

    def end(self) -> None:
        """Raises an InputError if a tree is not complete."""
        if self._open:
            raise self._error(f"{len(self._open)} brackets of this tree are not closed", self.began)

    def _close(self) -> Tree | None:
        label, children = self._open.pop()
        if not self._open:
            label = label or TOP
        elif label is None and not children:  # some parsers write "(())" if they find no tree
            return None
        if label is None:
            raise self._error("a bracket without a label")
        words = [part for part in children if isinstance(part, str)]
        if words and len(children) > 1:
            raise self._error(f"{words[0]!r} is not the only content of its bracket")
        tree = Tree(label, word=words[0]) if words else Tree(label, tuple(children))
        if not self._open:
            return tree
        self._open[-1][1].append(tree)
        return None

    def _error(self, problem: str, line: int | None = None) -> InputError:
        return InputError(f"{self._source}, line {line or self._line}: {problem}" if self._source else problem)


def transformed(
    root: Tree, of_word: Callable[[Tree], Tree | None], of_constituent: Callable[[Tree], Tree | None]
) -> Tree | None:
    """Replaces each word and each constituent of a tree, which may have any depth.

    Args:
        root: the tree.
        of_word: returns the replacement of a word, or None to remove it.
        of_constituent: returns the replacement of a constituent, whose children are already replaced, or None to remove
            it.

    Returns:
        The new tree, or None if the root was removed.
    """
    finished: list[list[Tree]] = [[]]
    stack: list[tuple[Tree, bool]] = [(root, False)]
    while stack:
        tree, is_done = stack.pop()
        if tree.word is None and not is_done:
            finished.append([])
            stack.append((tree, True))
            stack += [(child, False) for child in reversed(tree.children)]
            continue
        new_tree = of_constituent(Tree(tree.label, tuple(finished.pop()))) if is_done else of_word(tree)
        if new_tree is not None:
            finished[-1].append(new_tree)
    return finished[0][0] if finished[0] else None


def simplified(tree: Tree) -> Tree:
    """Simplifies a tree for training.

    The result has a single `TOP`, which replaces an outermost "ROOT" or "S1". Traces, and constituents that contain
    only traces, are removed; a tree of traces becomes a `TOP` without children. Functions are removed from labels:
    "NP-SBJ=2" becomes "NP". Words are spelled as in repaired text, with "_" instead of spaces such as a no-break space.
    """
    children = tree.children if tree.label in _TOPS and tree.word is None else (tree,)
    return transformed(Tree(TOP, children), _simplify_word, _simplify_constituent) or Tree(TOP)


def _simplify_word(tree: Tree) -> Tree | None:
    if tree.label == TRACE:
        return None
    return leaf(tree.label, "_".join(repair(_unescape(tree.word or "")).split()) or "_")


def _simplify_constituent(tree: Tree) -> Tree | None:
    if not tree.children:
        return None
    # A "-" at the beginning of a label belongs to it.
    return Tree(tree.label[:1] + re.split("[-=]", tree.label[1:], maxsplit=1)[0], tree.children)

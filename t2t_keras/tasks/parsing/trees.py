"""Constituency trees: read, written in brackets, made simple as parsers are trained on them."""

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator

from t2t_keras.errors import InputError
from t2t_keras.text.repair import repair

TOP = "TOP"  # the bracket around a whole tree
_TOPS = (TOP, "ROOT", "S1")  # its names in treebanks and in outputs of other parsers
TRACE = "-NONE-"  # the tag of what is not in the text

NAME = r"[^ \t\r\n\f\v()]+"  # what a label or a word may be, as a regular expression
_ATOM = re.compile(rf"[()]|{NAME}")
# How the Penn Treebank writes brackets that are words; others than round ones need it no more than other words.
_BRACKETS = {"-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}
ROUND = {"-LRB-": "(", "-RRB-": ")"}


@dataclasses.dataclass(frozen=True)
class Tree:
    """A constituent, or a word with its part of speech.

    Attributes:
        label: of the constituent, or the part of speech.
        children: constituents and words, in order; none in a word.
        word: the word, as treebanks write it; None in a constituent.
    """

    label: str
    children: tuple["Tree", ...] = ()
    word: str | None = None

    def leaves(self) -> list["Tree"]:
        """The words with their parts of speech, in order."""
        found, waiting = [], [self]
        while waiting:
            tree = waiting.pop()
            if tree.word is not None:
                found.append(tree)
            waiting.extend(reversed(tree.children))
        return found

    def words(self) -> list[str]:
        """The words as a text has them: "(" for "-LRB-"."""
        return [_unescaped(leaf.word or "") for leaf in self.leaves()]

    def __str__(self) -> str:
        """The tree in brackets, on one line."""
        written: list[str] = []
        waiting: list[Tree | str] = [self]
        while waiting:
            part = waiting.pop()
            if isinstance(part, str):
                written.append(part)
            elif part.word is not None:
                written.append(f" ({part.label} {part.word})")
            else:
                written.append(f" ({part.label}")
                waiting += [")", *reversed(part.children)]
        return "".join(written).lstrip()


def leaf(part_of_speech: str, word: str) -> Tree:
    """A word as a text has it, with its part of speech."""
    for escaped, bracket in ROUND.items():
        word = word.replace(bracket, escaped)
    return Tree(part_of_speech, word=word)


def _unescaped(word: str) -> str:
    """A word of a treebank as a text has it: round brackets wherever they stand in it, others where they are it."""
    for escaped, bracket in ROUND.items():
        word = word.replace(escaped, bracket)
    return _BRACKETS.get(word, word)


def read_trees(lines: Iterable[str], source: str = "", first: int = 1) -> Iterator[tuple[int, Tree]]:
    """Reads trees in brackets, of one or several lines each, with the number of the line where each begins.

    A tree's outermost bracket may lack a label, as in the Penn Treebank; it is then `TOP`. The first line has the
    number `first`.

    Raises:
        InputError: brackets that are not balanced, text outside of them, or a bracket with words and constituents; with
            a `source`, a file's name, it names that and the line.
    """
    reader = _Reader(source)
    for number, line in enumerate(lines, first):
        for match in _ATOM.finditer(line):
            tree = reader.read(match[0], number)
            if tree is not None:
                yield reader.began, tree
    reader.end()


def tree_of_line(line: str, source: str = "", number: int = 1) -> Tree:
    """All trees of a line below one `TOP`, which has no children if there is none; raises as `read_trees`.

    `number` is that of the line, for messages.
    """
    trees = tuple(tree for _, tree in read_trees([line], source, number))
    return trees[0] if len(trees) == 1 and trees[0].label == TOP and trees[0].word is None else Tree(TOP, trees)


class _Reader:
    """Puts brackets together."""

    def __init__(self, source: str) -> None:
        self._source = source
        self.began = self._line = 1
        self._open: list[list] = []  # of each open bracket: its label or None, what it contains

    def read(self, atom: str, line: int) -> Tree | None:
        """Takes the next bracket, label or word; returns a tree if that completes it."""
        self._line = line
        if atom == "(":
            if not self._open:
                self.began = line
            self._open.append([None, []])
            return None
        if not self._open:
            raise self._error("a closing bracket without an opening one" if atom == ")" else f"{atom!r} is in no tree")
        if atom == ")":
            return self._close()
        label, inside = self._open[-1]
        if label is None and not inside:
            self._open[-1][0] = atom
        elif inside:
            raise self._error(f"{atom!r} stands in a bracket beside something else")
        else:
            inside.append(atom)
        return None

    def end(self) -> None:
        """Raises an error if a tree is not complete."""
        if self._open:
            raise self._error(f"{len(self._open)} brackets of this tree never close", self.began)

    def _close(self) -> Tree | None:
        label, inside = self._open.pop()
        if not self._open:
            label = label or TOP
        elif label is None and not inside:  # "(())" is what some parsers write who found nothing
            return None
        if label is None:
            raise self._error("a bracket without a label")
        words = [part for part in inside if isinstance(part, str)]
        if words and len(inside) > 1:
            raise self._error(f"{words[0]!r} stands in a bracket beside something else")
        tree = Tree(label, word=words[0]) if words else Tree(label, tuple(inside))
        if not self._open:
            return tree
        self._open[-1][1].append(tree)
        return None

    def _error(self, what: str, line: int | None = None) -> InputError:
        return InputError(f"{self._source}, line {line or self._line}: {what}" if self._source else what)


def transformed(
    root: Tree, of_word: Callable[[Tree], Tree | None], of_constituent: Callable[[Tree], Tree | None]
) -> Tree | None:
    """A tree of any depth with each part replaced, or removed by None; a constituent after its children."""
    finished: list[list[Tree]] = [[]]
    waiting: list[tuple[Tree, bool]] = [(root, False)]
    while waiting:
        tree, is_done = waiting.pop()
        if tree.word is None and not is_done:
            finished.append([])
            waiting.append((tree, True))
            waiting += [(child, False) for child in reversed(tree.children)]
            continue
        new = of_constituent(Tree(tree.label, tuple(finished.pop()))) if is_done else of_word(tree)
        if new is not None:
            finished[-1].append(new)
    return finished[0][0] if finished[0] else None


def simplified(tree: Tree) -> Tree:
    """The tree below one `TOP`, without traces, what is empty without them, and the functions of labels.

    "NP-SBJ=2" becomes "NP", and an outermost "ROOT" or "S1" is a `TOP`. Words become what a repaired text has, without
    blanks: a no-break space in a word becomes "_". A tree of traces alone becomes a `TOP` without children.
    """
    below = tree.children if tree.label in _TOPS and tree.word is None else (tree,)
    return transformed(Tree(TOP, below), _plain_word, _plain) or Tree(TOP)


def _plain_word(tree: Tree) -> Tree | None:
    if tree.label == TRACE:
        return None
    return leaf(tree.label, "_".join(repair(_unescaped(tree.word or "")).split()) or "_")


def _plain(tree: Tree) -> Tree | None:
    if not tree.children:
        return None
    # A "-" at the beginning of a label belongs to it.
    return Tree(tree.label[:1] + re.split("[-=]", tree.label[1:], maxsplit=1)[0], tree.children)

"""Labels as tokens of a vocabulary, and how well they are found."""

import collections
import re
from collections.abc import Iterable, Sequence

from t2t_keras.errors import InputError
from t2t_keras.text.tokenizer import Tokenizer

_SYMBOL = re.compile(r"<=(.*)>")


def as_symbol(label: str) -> str:
    """A label as a word that no text has: "<=positive>"."""
    return f"<={label.replace(' ', '_')}>"


def is_symbol(word: str) -> bool:
    """Whether a word is a label as a token."""
    return _SYMBOL.fullmatch(word) is not None


def of_symbol(symbol: str) -> str:
    """The label of a symbol; what is none stays as it is."""
    match = _SYMBOL.fullmatch(symbol)
    return match[1] if match else symbol


def label_ids(tokenizer: Tokenizer) -> tuple[int, ...]:
    """The tokens of a vocabulary that are labels."""
    return tuple(id for symbol, id in tokenizer.symbols.items() if _SYMBOL.fullmatch(symbol))


def check_known(symbols: Iterable[str], tokenizer: Tokenizer) -> None:
    """Raises an `InputError` that names the label of a symbol that a vocabulary does not have."""
    for symbol in symbols:
        if symbol not in tokenizer.symbols:
            known = ", ".join(of_symbol(each) for each in tokenizer.symbols if _SYMBOL.fullmatch(each))
            raise InputError(f"{of_symbol(symbol)!r} is no label of the model, which has {known}")


def check_label(label: str, place: str) -> str:
    """Returns a label; raises an `InputError` that names the place if it is empty or has characters of symbols."""
    if not label or re.search(r"[<>\s]", label):
        raise InputError(f"{place}: {label!r} is no label: it must not be empty, nor have blanks, < or >")
    return label


def accuracy(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """The share of hypotheses that are right, in percent."""
    return 100 * sum(map(str.__eq__, hypotheses, references)) / len(references)


def macro_f1(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """The mean F1 of all labels that either side has, in percent."""
    counts = collections.Counter(zip(references, hypotheses, strict=True))
    labels = {label for pair in counts for label in pair}

    def f1(label: str) -> float:
        right = counts[label, label]
        given = sum(count for (_, hypothesis), count in counts.items() if hypothesis == label)
        wanted = sum(count for (reference, _), count in counts.items() if reference == label)
        return 2 * right / (given + wanted)

    return 100 * sum(map(f1, labels)) / len(labels)


def confusions(hypotheses: Sequence[str], references: Sequence[str]) -> str:
    """A table of what was found, in columns, for what is right, in rows; of the labels of both sides."""
    counts = collections.Counter(zip(references, hypotheses, strict=True))
    labels = sorted({label for pair in counts for label in pair})
    rows = [["", *labels], *([label, *(f"{counts[label, other]:,}" for other in labels)] for label in labels)]
    return _in_columns(rows)


def _in_columns(rows: Iterable[Sequence[str]]) -> str:
    """Rows of cells in columns, the first one flush left."""
    cells = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        others = [f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join([f"{row[0]:<{widths[0]}}", *others]))
    return "".join(f"{line.rstrip()}\n" for line in lines)

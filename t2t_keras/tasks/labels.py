"""Converts labels to tokens of the vocabulary, and scores them."""

import collections
import re
from collections.abc import Iterable, Sequence

from t2t_keras.errors import InputError
from t2t_keras.text.text_tokenizer import TextTokenizer

_SYMBOL = re.compile(r"<=(.*)>")


def as_symbol(label: str) -> str:
    """Converts a label to a symbol such as "<=positive>", a word that is unlikely to occur in text."""
    return f"<={label.replace(' ', '_')}>"


def is_symbol(word: str) -> bool:
    """Returns whether a word is the symbol of a label."""
    return _SYMBOL.fullmatch(word) is not None


def of_symbol(symbol: str) -> str:
    """Returns the label of a symbol; other words are returned unchanged."""
    match = _SYMBOL.fullmatch(symbol)
    return match[1] if match else symbol


def label_ids(tokenizer: TextTokenizer) -> tuple[int, ...]:
    """Returns the ids of the tokens that are symbols of labels."""
    return tuple(id for symbol, id in tokenizer.symbols.items() if _SYMBOL.fullmatch(symbol))


def check_known(symbols: Iterable[str], tokenizer: TextTokenizer) -> None:
    """Raises an `InputError`, which names the label, if a symbol is not in the vocabulary."""
    for symbol in symbols:
        if symbol not in tokenizer.symbols:
            valid = ", ".join(of_symbol(each) for each in tokenizer.symbols if _SYMBOL.fullmatch(each))
            raise InputError(f"{of_symbol(symbol)!r} is not a label of the model; valid: {valid}")


def check_label(label: str, place: str) -> str:
    """Returns a label; raises an `InputError`, which names `place`, if it is empty or has white space, "<" or ">"."""
    if not label or re.search(r"[<>\s]", label):
        raise InputError(f"{place}: {label!r} is not a valid label: it must not be empty or contain spaces, < or >")
    return label


def accuracy(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Returns the percentage of hypotheses that equal their references."""
    return 100 * sum(map(str.__eq__, hypotheses, references)) / len(references)


def macro_f1(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Returns the mean F1, in percent, of all labels in hypotheses or references."""
    counts = collections.Counter(zip(references, hypotheses, strict=True))
    labels = {label for pair in counts for label in pair}

    def f1(label: str) -> float:
        num_right = counts[label, label]
        num_given = sum(count for (_, hypothesis), count in counts.items() if hypothesis == label)
        num_expected = sum(count for (reference, _), count in counts.items() if reference == label)
        return 2 * num_right / (num_given + num_expected)

    return 100 * sum(map(f1, labels)) / len(labels)


def confusions(hypotheses: Sequence[str], references: Sequence[str]) -> str:
    """Returns a confusion matrix as text, with a row for each reference label and a column for each output label."""
    counts = collections.Counter(zip(references, hypotheses, strict=True))
    labels = sorted({label for pair in counts for label in pair})
    rows = [["", *labels], *([label, *(f"{counts[label, other]:,}" for other in labels)] for label in labels)]
    return _format_columns(rows)


def _format_columns(rows: Iterable[Sequence[str]]) -> str:
    """Formats a table as text, with the first column aligned left and the others right."""
    cells = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        aligned_cells = [f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join([f"{row[0]:<{widths[0]}}", *aligned_cells]))
    return "".join(f"{line.rstrip()}\n" for line in lines)

"""The sequence tagging task."""

import collections
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from t2t_keras.errors import InputError, optional_module
from t2t_keras.tasks.labels import accuracy, as_symbol, check_label, is_symbol, label_ids, of_symbol
from t2t_keras.tasks.score import Score, check_lines
from t2t_keras.tasks.task import Lines, ScoringSettings, Task
from t2t_keras.text.pieces import BLANK
from t2t_keras.text.repair import repair
from t2t_keras.text.text_tokenizer import TextTokenizer

if TYPE_CHECKING:
    from t2t_keras.search.restrictions.form import Form

OUTSIDE = "O"  # the label of a word outside of all entities
_DOCUMENT = "-DOCSTART-"
_SPAN_LABEL = re.compile(f"{OUTSIDE}|[BIESLU](-.+)?")
_COMPARABLE_TO = "conlleval and seqeval, which count an entity if its words and its type are correct"


class TaggingTask(Task):
    """Assigns one of the labels of the training data to each word of a text.

    Words are separated by spaces. Files are in CoNLL format: the first column of a line is a word, the last column is
    its label, and a blank line ends a sentence. A model writes each word followed by its label, so that it knows to
    which word the next label belongs. The search only chooses the labels, and copies the words.

    Reference: Raman et al., "Transforming Sequence Tagging Into A Seq2Seq Task", 2022, which compares such formats.
    """

    name = "tagging"
    metric = "f1"
    data = {"target_language": "en", "max_length": 512, "max_length_ratio": 20.0}
    decode = {"length_normalization": "none", "coverage_penalty": 0.0}
    held_out_sides = (0,)
    has_known_labels = True
    writes_source = True
    takes_tags = False

    def examples(self, lines: Iterable[str], path: str) -> Iterator[tuple[str, str]]:
        for words, labels in self._sentences(lines, path):
            yield " ".join(words), " ".join(labels)

    def outputs(self, lines: Iterable[str], path: str) -> list[str]:
        """Reads outputs or references; see `Task.outputs`.

        In a file that is not in CoNLL format, each line has all labels of a sentence.
        """
        lines = list(lines)
        if not _is_conll(lines):
            return [" ".join(line.split()) for line in lines]
        return [" ".join(labels) for _, labels in self._sentences(lines, path)]

    def _sentences(self, lines: Iterable[str], path: str) -> Iterator[tuple[list[str], list[str]]]:
        words: list[str] = []
        labels: list[str] = []
        width = 0  # number of columns in the previous line
        for number, line in enumerate(itertools.chain(lines, [""]), start=1):
            columns = _columns(line)
            if columns and columns[0] != _DOCUMENT:
                if len(columns) < 2:
                    raise InputError(f"{path}, line {number}: expected a word and its label, got {line!r}")
                if words and len(columns) != width:
                    raise InputError(f"{path}, line {number}: {len(columns)} columns, but {width} in the previous line")
                width = len(columns)
                words.append(_plain(columns[0]))
                labels.append(check_label(columns[-1], f"{path}, line {number}"))
            elif words:
                yield words, labels
                words, labels = [], []

    def symbols(self, references: Iterable[str]) -> list[str]:
        return sorted({as_symbol(label) for reference in references for label in reference.split(" ") if label})

    def form(self, tokenizer: TextTokenizer) -> "Form | None":
        from t2t_keras.search.restrictions.form import Form  # imports TensorFlow

        pieces = tokenizer.source.pieces(range(tokenizer.source.vocab_size))
        starts = tuple(id for id, piece in enumerate(pieces) if piece.startswith(BLANK))
        return Form(label_ids(tokenizer), starts)

    def target(self, source: str, reference: str) -> str:
        """Returns alternating words and symbols of labels; surplus words or symbols follow at the end."""
        words, labels = ([each for each in text.split(" ") if each] for text in (source, reference))
        pairs = itertools.zip_longest(words, map(as_symbol, labels), fillvalue="")
        return " ".join(filter(None, itertools.chain.from_iterable(pairs)))

    def target_in_graph(self, sources: Any, references: Any) -> Any:
        import tensorflow as tf

        words, labels = (_words_in_graph(texts) for texts in (sources, references))
        symbols = tf.where(labels == "", "", tf.strings.join(["<=", labels, ">"]))
        width = tf.maximum(tf.shape(words)[1], tf.shape(symbols)[1])
        sides = [
            tf.pad(side, [[0, 0], [0, width - tf.shape(side)[1]]], constant_values="") for side in (words, symbols)
        ]
        tokens = tf.reshape(tf.stack(sides, axis=2), [-1, 2 * width])  # --> [batch, words and labels in turn]
        return tf.strings.reduce_join(tf.ragged.boolean_mask(tokens, tokens != ""), axis=-1, separator=" ")

    def finish(self, source: str, output: str) -> str:
        symbols = (of_symbol(word) for word in output.split(" ") if is_symbol(word))
        labels = []
        for word in filter(None, source.split(" ")):
            if is_symbol(word):  # a word of the text that looks like a symbol, which the output also contains
                next(symbols, "")
            labels.append(next(symbols, OUTSIDE))
        return " ".join(labels)

    def finish_in_graph(self, sources: Any, outputs: Any) -> Any:
        import tensorflow as tf

        words, tokens = (_words_in_graph(texts) for texts in (sources, outputs))
        looks_alike, is_label = (tf.strings.regex_full_match(texts, "<=.*>") for texts in (words, tokens))
        symbols = tf.ragged.boolean_mask(tokens, is_label).to_tensor("")
        places = tf.range(tf.shape(words)[1]) + tf.cumsum(tf.cast(looks_alike, tf.int32), axis=1)  # --> [batch, words]
        symbols = tf.pad(symbols, [[0, 0], [0, 1]], constant_values="")
        symbols = tf.gather(symbols, tf.minimum(places, tf.shape(symbols)[1] - 1), batch_dims=1)
        labels = tf.where(symbols == "", OUTSIDE, tf.strings.regex_replace(symbols, "^<=(.*)>$", r"\1"))
        return tf.strings.reduce_join(tf.ragged.boolean_mask(labels, words != ""), axis=-1, separator=" ")

    def scores(self, hypotheses: Lines, references: Lines, settings: ScoringSettings | None = None) -> list[Score]:
        check_lines(hypotheses, references)
        outputs, expected = (_split_labels(lines) for lines in (hypotheses, references))
        for number, (labels, reference) in enumerate(zip(outputs, expected, strict=True), start=1):
            if len(labels) != len(reference):
                raise InputError(f"sentence {number}: {len(labels)} labels, {len(reference)} words in the references")
        metrics = _seqeval()
        if not _are_spans(expected):
            words = [list(itertools.chain.from_iterable(lines)) for lines in (outputs, expected)]
            return [Score("accuracy", accuracy(*words), "words", "the share of words whose label is correct")]
        values = {
            "F1": metrics.f1_score(expected, outputs, zero_division=0),
            "precision": metrics.precision_score(expected, outputs, zero_division=0),
            "recall": metrics.recall_score(expected, outputs, zero_division=0),
        }
        return [Score(name, 100 * float(value), "seqeval", _COMPARABLE_TO) for name, value in values.items()]

    def check(self, references: Sequence[str], settings: ScoringSettings) -> None:
        _seqeval()

    def report(self, hypotheses: Sequence[str], references: Sequence[str]) -> str:
        outputs, expected = (_split_labels(lines) for lines in (hypotheses, references))
        metrics = _seqeval()
        if not _are_spans(expected) or not (metrics.sequence_labeling.get_entities(outputs + expected)):
            return ""
        return f"\n{metrics.classification_report(expected, outputs, digits=3, zero_division=0)}"


def _words_in_graph(texts: Any) -> Any:
    """Splits texts, string [batch], into words; returns string [batch, words], padded with ""."""
    import tensorflow as tf

    words = tf.strings.split(texts, " ")
    return tf.ragged.boolean_mask(words, words != "").to_tensor("")


def _are_spans(sentences: Sequence[Sequence[str]]) -> bool:
    """Returns whether most labels mark spans, such as "B-PER", "I-PER" and "O"; parts of speech do not."""
    labels = list(itertools.chain.from_iterable(sentences))
    return 2 * sum(bool(_SPAN_LABEL.fullmatch(label)) for label in labels) >= len(labels)


def _columns(line: str) -> list[str]:
    """Splits a line into columns, at tabs if there are any, else at spaces."""
    line = line.strip(" \t\r")
    return (re.split(r"\t+", line) if "\t" in line else re.split(" +", line)) if line else []


def _is_conll(lines: Sequence[str]) -> bool:
    """Returns whether each line has a word and its label (CoNLL format), rather than all labels of a sentence.

    The majority of the lines decides, so that a few unusual labels do not matter.
    """
    rows = [columns for columns in map(_columns, lines) if columns and columns[0] != _DOCUMENT]
    firsts, lasts = (sum(_are_spans([[row[place]]]) for row in rows) for place in (0, -1))
    if 2 * lasts >= len(rows):
        return 2 * firsts < len(rows)
    if any("\t" in line for line in lines):
        return True
    ((width, count),) = collections.Counter(map(len, rows)).most_common(1)
    return not all(map(str.strip, lines)) and width > 1 and 2 * count > len(rows)


def _split_labels(lines: Iterable[str]) -> list[list[str]]:
    """Splits lines into labels, and renames the prefixes "U-" and "L-" to seqeval's "S-" and "E-"."""
    return [[re.sub("^U-", "S-", re.sub("^L-", "E-", label)) for label in line.split()] for line in lines]


def _plain(word: str) -> str:
    """Returns a word as it occurs in repaired text, with spaces replaced by underscores."""
    return "_".join(repair(word).replace(BLANK, "_").split()) or "_"


def _seqeval() -> Any:
    missing = "seqeval, which scores labels of words, is missing: pip install '.[tasks]'"
    return optional_module("seqeval.metrics", missing)

"""The text classification task."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from t2t_keras.errors import InputError
from t2t_keras.tasks.labels import accuracy, as_symbol, check_label, confusions, label_ids, macro_f1, of_symbol
from t2t_keras.tasks.score import Score, check_lines
from t2t_keras.tasks.task import Lines, ScoringSettings, Task
from t2t_keras.text.spreadsheets import tab_separated_rows
from t2t_keras.text.text_tokenizer import TextTokenizer

if TYPE_CHECKING:
    from t2t_keras.search.restrictions.form import Form

_COMPARABLE_TO = "scores on the same texts with the same labels"


class ClassificationTask(Task):
    """Assigns one of the labels of the training data to a text.

    Each label is a single token, and the search produces only labels. Each line of a file has a text and its label,
    separated by a tab. Texts that are too long are truncated, also in training.
    """

    name = "classification"
    metric = "accuracy"
    data = {"target_language": "en", "max_length": 512, "max_length_ratio": 1e9}
    # The score of a label is its log-probability.
    decode = {
        **{"length_normalization": "none", "coverage_penalty": 0.0},
        **{"max_length_offset": 2, "max_length_factor": 0.0},
    }
    held_out_sides = (0,)
    has_known_labels = True
    reads_beginnings = True

    def examples(self, lines: Iterable[str], path: str) -> Iterator[tuple[str, str]]:
        for number, (*texts, label) in tab_separated_rows(lines):
            if not texts:
                raise InputError(f"{path}, line {number}: expected a text and its label, separated by a tab")
            yield "\t".join(texts), check_label(label.strip(), f"{path}, line {number}")

    def outputs(self, lines: Iterable[str], path: str) -> list[str]:
        """Reads the last column of each line; an empty line is the output for an empty text. See `Task.outputs`."""
        labels = ((number, cells[-1].strip()) for number, cells in tab_separated_rows(lines))
        return [label and check_label(label, f"{path}, line {number}") for number, label in labels]

    def symbols(self, references: Iterable[str]) -> list[str]:
        return sorted({as_symbol(label) for label in references})

    def form(self, tokenizer: TextTokenizer) -> "Form | None":
        from t2t_keras.search.restrictions.form import Form  # imports TensorFlow

        return Form(label_ids(tokenizer))

    def target(self, source: str, reference: str) -> str:
        return as_symbol(reference)

    def target_in_graph(self, sources: Any, references: Any) -> Any:
        import tensorflow as tf

        return tf.strings.join(["<=", tf.strings.regex_replace(references, " ", "_"), ">"])

    def finish(self, source: str, output: str) -> str:
        return of_symbol(output)

    def finish_in_graph(self, sources: Any, outputs: Any) -> Any:
        import tensorflow as tf

        return tf.strings.regex_replace(outputs, "^<=(.*)>$", r"\1")

    def scores(self, hypotheses: Lines, references: Lines, settings: ScoringSettings | None = None) -> list[Score]:
        check_lines(hypotheses, references)
        labels = f"{len(set(references)):,} labels"
        return [
            Score("accuracy", accuracy(hypotheses, references), labels, _COMPARABLE_TO),
            Score("macro F1", macro_f1(hypotheses, references), labels, _COMPARABLE_TO),
        ]

    def report(self, hypotheses: Sequence[str], references: Sequence[str]) -> str:
        return f"\nconfusion matrix, one row for each label of the references:\n{confusions(hypotheses, references)}"

"""The interface of tasks; its defaults suit tasks that turn text into other text."""

import abc
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from t2t_keras.tasks.score import Score
from t2t_keras.text.splitting import split_text
from t2t_keras.text.spreadsheets import pairs_of_columns, tab_separated_rows
from t2t_keras.text.text_tokenizer import TextTokenizer

if TYPE_CHECKING:  # the search imports TensorFlow, which the preparation of data does not need
    from t2t_keras.search.restrictions.form import Form


Lines = Sequence[str]  # outputs or references


@dataclasses.dataclass(frozen=True)
class ScoringSettings:
    """Settings for computing scores.

    Attributes:
        language: language code of the outputs, which determines how they are split into words; "" detects the language
            from the references.
        lowercase: whether to also score lowercased text.
        paper_bleu: whether to also score translations as in the paper.
    """

    language: str = ""
    lowercase: bool = False
    paper_bleu: bool = False


def two_columns(lines: Iterable[str], path: str) -> Iterator[tuple[str, str]]:
    """Yields the first two tab-separated columns of each line, without the quotes of spreadsheets.

    Raises:
        InputError: a line has no tab, or one column begins with numbers (perhaps after a header) where the other one
            does not; names `path` and the line.
    """
    return pairs_of_columns(tab_separated_rows(lines), path)


class Task(abc.ABC):
    """Defines the sources and targets of a task, and how outputs are post-processed and scored, for any model.

    Attributes:
        name: value of the flag `--task`.
        metric: name of the score that monitors training, which is the first of `scores`.
        data: settings of `DataConfig` that differ from the defaults.
        decode: settings of `DecodeConfig` that the task determines; they replace those of a preset.
        held_out_sides: sides of a pair (0 is the source, 1 the target) whose text must not occur in two splits,
            unless `keeps_repeated` is true.
        has_known_labels: whether references may have only labels that occur in training.
        writes_text: whether outputs are text, which may be lowercased.
        is_parallel: whether sources and references may also be given as two parallel files.
        context: symbol after which a long source is split. The text before it, such as a question, is repeated in front
            of each part, and the best output of the parts is used. If None, the outputs of the parts are joined.
        no_answer: output for a part without an answer, if there is a `context`.
        writes_source: whether the model copies words of the source, so that both sides must share a vocabulary.
        is_masked: whether training makes the sources from the targets, replacing spans with the first of `symbols`.
        reads_beginnings: whether only the first part of a source that is too long is read.
        has_sentences: whether the sentences of a text may be translated separately.
        takes_tags: whether a source may begin with the tag of its corpus, which is not a word of the text.
    """

    name: ClassVar[str]
    metric: ClassVar[str]
    data: ClassVar[Mapping[str, Any]] = {}
    decode: ClassVar[Mapping[str, Any]] = {}
    held_out_sides: ClassVar[tuple[int, ...]] = (0, 1)
    has_known_labels: ClassVar[bool] = False
    writes_text: ClassVar[bool] = False
    is_parallel: ClassVar[bool] = False
    context: ClassVar[str | None] = None
    no_answer: ClassVar[str] = ""
    writes_source: ClassVar[bool] = False
    is_masked: ClassVar[bool] = False
    reads_beginnings: ClassVar[bool] = False
    has_sentences: ClassVar[bool] = False
    takes_tags: ClassVar[bool] = True

    @property
    def keeps_repeated(self) -> bool:
        """Whether training keeps duplicates and pairs of evaluation sets, which it does if references are labels.

        Published scores of labels and trees are from models that were trained on the whole training set.
        """
        return not self.writes_text and self.context is None

    @abc.abstractmethod
    def examples(self, lines: Iterable[str], path: str) -> Iterator[tuple[str, str]]:
        """Yields pairs of source and reference from the lines of a file in the format of the task.

        Raises:
            InputError: a line is not in this format; names `path` and the line.
        """

    def outputs(self, lines: Iterable[str], path: str) -> list[str]:
        """Reads a file of outputs or references, to score outputs without a model; raises as `examples`."""
        return list(lines)

    def symbols(self, references: Iterable[str]) -> list[str]:
        """Returns the words that must be single tokens of the vocabulary, given the references of the training data."""
        return []

    def check_source(self, source: str) -> None:
        """Raises an `InputError` if a text, which is not blank, is not a valid source of this task."""
        del source

    def form(self, tokenizer: TextTokenizer) -> "Form | None":
        """Returns the form that the search must give to all outputs; None allows any text."""
        return None

    def target(self, source: str, reference: str) -> str:
        """Returns the text that a model learns to write for a source with this reference."""
        return reference

    def target_in_graph(self, sources: Any, references: Any) -> Any:
        """Computes `target` for tensors, string [batch] each."""
        return references

    def training_pairs(self, source: str, reference: str, fits: Callable[[str], bool]) -> Iterable[tuple[str, str]]:
        """Returns pairs of source and `target` to train on.

        Args:
            source: a source, which may be too long.
            reference: its reference.
            fits: returns whether a source is short enough.
        """
        beginning = [*split_text(source, fits), source][0] if self.reads_beginnings else source
        return [(beginning, self.target(source, reference))]

    def finish(self, source: str, output: str) -> str:
        """Converts the text that a model wrote for a source into the output."""
        return output

    def finish_in_graph(self, sources: Any, outputs: Any) -> Any:
        """Computes `finish` for tensors, string [batch] each."""
        return outputs

    def check(self, references: Sequence[str], settings: ScoringSettings) -> None:
        """Raises an `InputError` if outputs cannot be scored with these settings."""
        del references, settings

    def check_monitored(self, references: Sequence[str], settings: ScoringSettings) -> None:
        """Raises an `InputError` if outputs cannot be scored with `monitored`."""
        self.check(references, settings)

    @abc.abstractmethod
    def scores(self, hypotheses: Lines, references: Lines, settings: ScoringSettings | None = None) -> list[Score]:
        """Returns the scores of outputs.

        Raises:
            InputError: there are no outputs, or the number of references differs.
        """

    def report(self, hypotheses: Sequence[str], references: Sequence[str]) -> str:
        """Returns further results as text, such as a table of confused labels; may be empty."""
        return ""

    def monitored(self, hypotheses: Sequence[str], references: Sequence[str], language: str = "") -> float:
        """Returns the value of `metric`, which monitors training; `language` is as in `ScoringSettings`."""
        return self.scores(hypotheses, references, ScoringSettings(language))[0].value

"""The contract of a task; what it leaves as it is here makes a task of text that becomes other text."""

import abc
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from t2t_keras.errors import InputError
from t2t_keras.tasks.score import Score
from t2t_keras.text.splitting import split_text
from t2t_keras.text.tokenizer import Tokenizer

if TYPE_CHECKING:  # searches import TensorFlow, which preparing data does without
    from t2t_keras.search.restrictions.form import Form


Lines = Sequence[str]  # of outputs or of references

_NUMBERS_IN_A_ROW = 20  # of lines at the start of a file: that column is of ids or labels, and no text


@dataclasses.dataclass(frozen=True)
class ScoringSettings:
    """What scores of text depend on besides the text.

    Attributes:
        language: code of the language of the outputs, which decides what counts as a word; "" means that the
            references show it.
        lowercase: whether lowercased text is scored too.
        paper_bleu: whether translations are also scored as the paper did.
    """

    language: str = ""
    lowercase: bool = False
    paper_bleu: bool = False


def two_columns(lines: Iterable[str], path: str) -> Iterator[tuple[str, str]]:
    """The first two columns of each line, which are separated by tabs.

    An `InputError` names a line without a tab, or a column that begins with numbers, behind a header or not, where the
    other one has text.
    """
    numbers = [0, 0]
    for number, line in enumerate(lines, start=1):
        columns = line.split("\t")[:2]
        if len(columns) < 2:
            raise InputError(f"{path}, line {number}: expected source and target separated by a tab")
        are_numbers = [column.strip().isdecimal() for column in columns]
        for place in (0, 1):
            numbers[place] += are_numbers[place] > are_numbers[1 - place]
            if numbers[place] == _NUMBERS_IN_A_ROW and number <= _NUMBERS_IN_A_ROW + 1:
                expected = "source and target, separated by a tab, in the first two columns (if it is text: two files)"
                found = f"column {place + 1} has numbers, such as {columns[place].strip()} in line {number}"
                raise InputError(f"{path}: {found}; expected {expected}")
        yield columns[0], columns[1]


class Task(abc.ABC):
    """What source and target mean, how an output is finished, and how it is scored. It knows no model.

    Attributes:
        name: what `--task` calls it.
        metric: name of the score that a training is monitored by, the first of `scores`.
        data: settings of `DataConfig` that differ from the defaults.
        decode: settings of `DecodeConfig` that differ from the defaults.
        held_out_sides: sides of a pair, 0 the source and 1 the target, that occur in no two splits, unless the task
            `keeps_repeated`.
        has_known_labels: whether references may have none but the `symbols` of those that training has.
        writes_text: whether outputs are text that may be lowercased.
        is_parallel: whether source and reference may also be lines of two files.
        context: the symbol of the source behind which a long text is cut; what is before it, such as a question, stays
            in front of each part, and the best output of a part is taken. None: outputs of parts are joined.
        no_answer: with `context`, the output for a part that has no answer.
        writes_source: whether a model writes words of the source, so that both sides need the same vocabulary.
        is_masked: whether training makes sources of the targets, by masking spans with the first of `symbols`.
        reads_beginnings: whether of a text that is too long only the first part is read; else outputs of parts are
            joined, or chosen with `context`.
        has_sentences: whether the sentences of a text may be translated one by one.
        takes_tags: whether a source may have the tag of its corpus in front, which is no word of the text.
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
        """Whether all is trained on, also what occurs twice or in an evaluation set: where references are labels.

        Published scores of labels and trees are those of models that had the whole of a training set.
        """
        return not self.writes_text and self.context is None

    @abc.abstractmethod
    def examples(self, lines: Iterable[str], path: str) -> Iterator[tuple[str, str]]:
        """Pairs of source and reference from the lines of a file in the task's own format.

        An InputError names `path` and a line that is not in this format.
        """

    def outputs(self, lines: Iterable[str], path: str) -> list[str]:
        """The outputs or references of a file of them, to be scored without a model; raises as `examples`."""
        return list(lines)

    def symbols(self, references: Iterable[str]) -> list[str]:
        """Words that the vocabulary must have as one token each, from what training has as references."""
        return []

    def check_source(self, source: str) -> None:
        """Raises an `InputError` if a text that is not blank is no source of this task."""
        del source

    def form(self, tokenizer: Tokenizer) -> "Form | None":
        """What every output looks like; None for any text."""
        return None

    def target(self, source: str, reference: str) -> str:
        """What a model learns to write for a source with this reference."""
        return reference

    def target_in_graph(self, sources: Any, references: Any) -> Any:
        """`target` of tensors, string [batch] each."""
        return references

    def training_pairs(self, source: str, reference: str, fits: Callable[[str], bool]) -> Iterable[tuple[str, str]]:
        """Sources and what a model learns to write for them; `fits` tells whether a source is not too long."""
        beginning = [*split_text(source, fits), source][0] if self.reads_beginnings else source
        return [(beginning, self.target(source, reference))]

    def finish(self, source: str, output: str) -> str:
        """The output for a source, made of what a model wrote."""
        return output

    def finish_in_graph(self, sources: Any, outputs: Any) -> Any:
        """`finish` of tensors, string [batch] each."""
        return outputs

    def check(self, references: Sequence[str], settings: ScoringSettings) -> None:
        """Raises an `InputError` if outputs cannot be scored with these settings."""
        del references, settings

    def check_monitored(self, references: Sequence[str], settings: ScoringSettings) -> None:
        """Raises an `InputError` if `monitored` cannot score outputs."""
        self.check(references, settings)

    @abc.abstractmethod
    def scores(self, hypotheses: Lines, references: Lines, settings: ScoringSettings | None = None) -> list[Score]:
        """The scores of outputs; raises an `InputError` if there are none, or not as many references."""

    def report(self, hypotheses: Sequence[str], references: Sequence[str]) -> str:
        """What is to be seen besides the scores, such as which labels are taken for which; may be empty."""
        return ""

    def monitored(self, hypotheses: Sequence[str], references: Sequence[str], language: str = "") -> float:
        """The value of `metric`, to monitor a training by; `language` as in `ScoringSettings`."""
        return self.scores(hypotheses, references, ScoringSettings(language))[0].value

"""The constituency parsing task (section 6.3 of the paper)."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from t2t_keras.errors import InputError
from t2t_keras.tasks.parsing.bracket_scores import bracket_counts, compared, with_tags
from t2t_keras.tasks.parsing.linear_trees import finished, linearised
from t2t_keras.tasks.parsing.trees import ROUND, Tree, read_trees, simplified, tree_of_line
from t2t_keras.tasks.score import Score, check_lines
from t2t_keras.tasks.task import Lines, ScoringSettings, Task

_EVALB = "EVALB, COLLINS.prm; sentences whose words differ count as wrong"
_COMPARABLE_TO = "EVALB with COLLINS.prm on trees without functions of labels"


class ParsingTask(Task):
    """Parses words separated by spaces into a constituency tree in brackets; scored as in EVALB.

    Files contain trees in brackets, each on one or several lines. The model writes trees without parts of speech; see
    `linear_trees`.
    """

    name = "parsing"
    metric = "f1"
    # A tree can have many more brackets than words. The settings of the search are those of section 6.3 of the paper.
    data = {"max_length": 512, "max_length_ratio": 20.0, "target_language": "en"}
    decode = {
        **{"beam_size": 21, "length_penalty": 0.3, "max_length_offset": 300},
        **{"length_normalization": "gnmt", "coverage_penalty": 0.0},
    }
    held_out_sides = (0,)
    takes_tags = False

    def examples(self, lines: Iterable[str], path: str) -> Iterator[tuple[str, str]]:
        for number, tree in read_trees(lines, path):
            tree = simplified(tree)
            if not tree.children:
                raise InputError(f"{path}, line {number}: the tree has no words")
            yield " ".join(tree.words()), str(tree)

    def outputs(self, lines: Iterable[str], path: str) -> list[str]:
        """Reads outputs or references; see `Task.outputs`.

        If no tree extends over several lines, each line is an output, which may be empty or have several trees.
        """
        lines = list(lines)
        if all(line.count("(") == line.count(")") for line in lines):
            return [str(simplified(tree_of_line(line, path, number))) for number, line in enumerate(lines, start=1)]
        return [str(simplified(tree)) for _, tree in read_trees(lines, path)]

    def symbols(self, references: Iterable[str]) -> list[str]:
        """Returns the labelled brackets, and the escapes of brackets that are words, so that each is a single token."""
        tokens = {token for reference in references for token in _linear(reference).split(" ")}
        return sorted(token for token in tokens if token[:1] in {"(", ")"} or token in ROUND)

    def target(self, source: str, reference: str) -> str:
        return _linear(reference)

    def target_in_graph(self, sources: Any, references: Any) -> Any:
        from t2t_keras.tasks.parsing.graph_trees import linearised_in_graph  # imports TensorFlow

        return linearised_in_graph(references)

    def finish(self, source: str, output: str) -> str:
        words = [word for word in source.split(" ") if word]
        return str(finished(words, output))

    def finish_in_graph(self, sources: Any, outputs: Any) -> Any:
        from t2t_keras.tasks.parsing.graph_trees import finished_in_graph  # imports TensorFlow

        return finished_in_graph(sources, outputs)

    def scores(self, hypotheses: Lines, references: Lines, settings: ScoringSettings | None = None) -> list[Score]:
        check_lines(hypotheses, references)
        trees, expected_trees = zip(*_trees(hypotheses, references), strict=True)
        precision, recall, f1, exact = bracket_counts(trees, expected_trees).scores()
        values = {"F1": f1, "precision": precision, "recall": recall, "exact match": exact}
        return [Score(name, value, _EVALB, _COMPARABLE_TO) for name, value in values.items()]

    def report(self, hypotheses: Sequence[str], references: Sequence[str]) -> str:
        """Describes trees whose words differ from the reference, or that have no words; they count as wrong."""
        kinds = {"words other than the reference's": "errors", "no words": "skipped"}
        counts = [(n, compared(*pair)) for n, pair in enumerate(_trees(hypotheses, references), start=1)]
        lines = []
        for problem, name in kinds.items():
            numbers = [number for number, count in counts if getattr(count, name) > count.empty]
            if numbers:
                lines.append(f"{len(numbers):,} trees with {problem}, the first one is number {numbers[0]:,}\n")
        return "".join(["\n", *lines]) if lines else ""


def _linear(reference: str) -> str:
    return linearised(tree_of_line(reference))


def _trees(hypotheses: Sequence[str], references: Sequence[str]) -> Iterator[tuple[Tree, Tree]]:
    """Yields each tree, with the parts of speech of its reference, and the reference."""
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        expected_tree = tree_of_line(reference)
        yield with_tags(tree_of_line(hypothesis), expected_tree), expected_tree

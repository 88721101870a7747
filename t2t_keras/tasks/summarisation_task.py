"""The summarisation task."""

import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from t2t_keras.errors import optional_module
from t2t_keras.tasks.score import Score, check_lines
from t2t_keras.tasks.task import Lines, ScoringSettings, Task, two_columns
from t2t_keras.text.language_codes import base_language
from t2t_keras.text.languages import words_and_characters

_NAMES = {"rougeL": "ROUGE-L", "rouge1": "ROUGE-1", "rouge2": "ROUGE-2"}
_COMPARABLE_TO = "ROUGE (Lin, 2004) of the package rouge-score with the same words"


class SummarisationTask(Task):
    """Summarises a text.

    Texts and summaries are corresponding lines of two files, or are separated by a tab in a single file.
    """

    name = "summarisation"
    metric = "rouge_l"
    data = {"target_language": "en", "max_length": 512, "max_length_ratio": 100.0}
    decode = {"max_length_factor": 0.0, "max_length_offset": 100}
    writes_text = True
    is_parallel = True

    def examples(self, lines: Iterable[str], path: str) -> Iterator[tuple[str, str]]:
        return two_columns(lines, path)

    def check(self, references: Sequence[str], settings: ScoringSettings) -> None:
        _rouge()

    def scores(self, hypotheses: Lines, references: Lines, settings: ScoringSettings | None = None) -> list[Score]:
        """Returns ROUGE-L, ROUGE-1 and ROUGE-2, as the mean F measure of all summaries.

        For English, words consist of a-z and digits and are stemmed (Porter), as in published scores. For other
        languages, words are those of `words_and_characters`, without case. If no language is given, references whose
        letters are mostly ASCII are assumed to be English.
        """
        check_lines(hypotheses, references)
        language = (settings or ScoringSettings()).language
        package = _rouge()
        letters = [character for line in references for character in line if character.isalpha()]
        is_latin = 2 * sum(map(str.isascii, letters)) >= len(letters)
        if base_language(language) == "en" or (not language and is_latin):
            scorer, words = package.RougeScorer(list(_NAMES), use_stemmer=True), "words of a-z and digits, stemmed"
        else:
            tokenizer = types.SimpleNamespace(tokenize=lambda text: words_and_characters(text.casefold()))
            scorer, words = package.RougeScorer(list(_NAMES), tokenizer=tokenizer), "words of any letters"
        results = [scorer.score(reference, line) for line, reference in zip(hypotheses, references, strict=True)]
        means = {kind: sum(scores[kind].fmeasure for scores in results) / len(results) for kind in _NAMES}
        return [Score(name, 100 * means[kind], f"F measure, {words}", _COMPARABLE_TO) for kind, name in _NAMES.items()]


def _rouge() -> Any:
    missing = "rouge_score, which scores summaries, is missing: pip install '.[tasks]'"
    return optional_module("rouge_score.rouge_scorer", missing)

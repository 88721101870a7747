"""The translation task."""

from collections.abc import Iterable, Iterator, Sequence

from t2t_keras.tasks.score import Score
from t2t_keras.tasks.task import Lines, ScoringSettings, Task, two_columns
from t2t_keras.text.languages import written_in


class TranslationTask(Task):
    """Translates text into a different language; scored by BLEU, chrF and TER."""

    name = "translation"
    metric = "bleu"
    writes_text = True
    is_parallel = True
    has_sentences = True

    def examples(self, lines: Iterable[str], path: str) -> Iterator[tuple[str, str]]:
        return two_columns(lines, path)

    def check(self, references: Sequence[str], settings: ScoringSettings) -> None:
        from t2t_keras.tasks.translation_scores import check_language  # sacreBLEU takes a while to import

        check_language(_language(references, settings), paper_bleu=settings.paper_bleu)

    def check_monitored(self, references: Sequence[str], settings: ScoringSettings) -> None:
        """Accepts all languages, because `monitored` compares characters if the tokeniser is not installed."""

    def scores(self, hypotheses: Lines, references: Lines, settings: ScoringSettings | None = None) -> list[Score]:
        from t2t_keras.tasks.translation_scores import lowercased_scores, paper_bleu_score, sacrebleu_scores

        settings = settings or ScoringSettings()
        language = _language(references, settings)
        scores = sacrebleu_scores(hypotheses, references, language)
        if settings.lowercase:
            scores += lowercased_scores(hypotheses, references, language)
        if settings.paper_bleu:
            scores.append(paper_bleu_score(hypotheses, references, language))
        return scores

    def monitored(self, hypotheses: Sequence[str], references: Sequence[str], language: str = "") -> float:
        from t2t_keras.tasks.translation_scores import bleu

        return bleu(hypotheses, references, language or None)


def _language(references: Sequence[str], settings: ScoringSettings) -> str:
    return settings.language or written_in(references) or "en"

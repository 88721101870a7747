"""Evaluation on a corpus: translates it, scores the translations and writes both to files."""

import dataclasses
import math
import os
import pathlib
import time
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from t2t_keras.inference.forced import pair_batches, token_log_probs_function
from t2t_keras.inference.request import Request
from t2t_keras.inference.translator import Translator
from t2t_keras.machine.files import local_path, replacing, write_json
from t2t_keras.search.batches import Progress
from t2t_keras.symbols import EOS_ID
from t2t_keras.tasks.score import Score, check_lines
from t2t_keras.tasks.task import ScoringSettings
from t2t_keras.text.text_tokenizer import TextTokenizer

# Sources and references are truncated to this many tokens: attention over more would need too much memory.
MAX_CROSS_ENTROPY_LENGTH = 1024


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """A translated and scored corpus.

    Attributes:
        hypotheses: one translation per source line.
        scores: scores of the hypotheses.
        perplexity: perplexity per reference token, end symbols included; None if it was not computed.
        seconds: translation time, without the warm-up call that traces the graph.
        num_tokens: number of tokens generated in that time, end symbols included.
        num_long_lines: number of source lines with a sentence that was too long to be translated in one piece.
        num_cut: number of hypotheses truncated at the length limit.
        nats_per_line: cross-entropy per line of the references, which compares models with different vocabularies; None
            if it was not computed.
    """

    hypotheses: list[str]
    scores: list[Score]
    perplexity: float | None
    seconds: float
    num_tokens: int
    num_long_lines: int
    num_cut: int
    nats_per_line: float | None = None

    @property
    def tokens_per_second(self) -> float:
        """The number of generated tokens per second."""
        return self.num_tokens / max(self.seconds, 1e-9)


def evaluate(
    translator: Translator,
    sources: Sequence[str | Request],
    references: Sequence[str],
    settings: ScoringSettings | None = None,
    on_progress: Progress | None = None,
) -> Evaluation:
    """Translates the sources and scores the results against the references with the metrics of the translator's task.

    Args:
        translator: translates the sources.
        sources: lines of text, or requests.
        references: one per source.
        settings: settings of the scores; None means the defaults.
        on_progress: see `Translator.translate`.

    Raises:
        InputError: there are no lines, the numbers of sources and references differ, or the task cannot score with
            these settings, for example because a tokeniser is not installed. Raised before translation starts.
    """
    check_lines(sources, references)
    translator.task.check(references, settings or ScoringSettings())
    # Warm-up: traces the graph or converts the model. A blank line would do neither.
    texts = [source if isinstance(source, str) else source.text for source in sources]
    first = next((place for place, text in enumerate(texts) if text.strip()), 0)
    translator.translate(sources[first : first + 1], scored=False)
    start = time.perf_counter()
    translations = translator.translate(sources, on_progress, scored=False)
    seconds = time.perf_counter() - start
    hypotheses = [translation.line for translation in translations]
    scores = translator.task.scores(hypotheses, references, settings)
    return Evaluation(
        hypotheses,
        scores,
        None,
        seconds,
        sum(translation.num_tokens for translation in translations),
        sum(translation.is_overlong for translation in translations),
        sum(translation.is_cut for translation in translations),
    )


def corpus_cross_entropy(
    model: Any, tokenizer: TextTokenizer, sources: Sequence[str], targets: Sequence[str], tokens_per_batch: int = 2048
) -> tuple[float, int]:
    """Computes the cross-entropy of the targets under the model, without label smoothing.

    exp(sum / count) of the result is the perplexity per token. Sentences are truncated to `MAX_CROSS_ENTROPY_LENGTH`
    tokens, end symbol included.

    Args:
        model: the model.
        tokenizer: its tokenizer.
        sources: lines of text, prepared as the training data was.
        targets: one per source, prepared likewise.
        tokens_per_batch: limit of a batch's rows times the padded length of its longer side.

    Returns:
        The sum over all target tokens, end symbols included, in nats; and the number of these tokens.

    Raises:
        InputError: there are no lines, or the numbers of lines differ.
    """
    check_lines(sources, targets)
    source_ids, target_ids = _cut_ids(tokenizer.source, sources), _cut_ids(tokenizer, targets)
    token_log_probs = token_log_probs_function(model)
    total = 0.0
    for _, source, target in pair_batches(source_ids, target_ids, tokens_per_batch):
        total -= float(tf.reduce_sum(token_log_probs(source, target)))
    return total, sum(map(len, target_ids))


def target_cross_entropy(
    translator: Translator, sources: Sequence[str], references: Sequence[str]
) -> tuple[float, int]:
    """Computes the cross-entropy of the targets that the model was trained to write; see `corpus_cross_entropy`.

    Sources and references are prepared as the translator prepares lines.
    """
    check_lines(sources, references)
    budget = translator.config.tokens_per_batch
    texts = translator.prepared(sources, references)
    return corpus_cross_entropy(translator.model, translator.tokenizer, *texts, budget)


def perplexity(cross_entropy: tuple[float, int]) -> float:
    """Computes the perplexity from the result of `corpus_cross_entropy`; inf if it is too large for a float."""
    total, count = cross_entropy
    mean = total / count
    return math.inf if mean >= 700 else math.exp(mean)


def write_evaluation(
    output_dir: str | os.PathLike[str], evaluation: Evaluation, settings: dict[str, Any]
) -> tuple[pathlib.Path, pathlib.Path]:
    """Writes `hypotheses.txt`, one hypothesis per line, and `scores.json`.

    Args:
        output_dir: folder for the files; created if missing.
        evaluation: the evaluation to write. Numbers that are not finite are written as null.
        settings: JSON values that describe what was evaluated; stored in `scores.json`.

    Returns:
        The paths of the two files.

    Raises:
        OSError: a file cannot be written.
    """
    directory = local_path(output_dir, "output_dir")
    directory.mkdir(parents=True, exist_ok=True)
    hypotheses_path, scores_path = directory / "hypotheses.txt", directory / "scores.json"
    with replacing(hypotheses_path) as file:
        file.writelines(f"{hypothesis}\n" for hypothesis in evaluation.hypotheses)
    numbers = {name: getattr(evaluation, name) for name in ("perplexity", "nats_per_line")}
    values = {
        "settings": settings,
        "scores": [dataclasses.asdict(score) for score in evaluation.scores],
        **{name: n if n is not None and math.isfinite(n) else None for name, n in numbers.items()},
        "num_lines": len(evaluation.hypotheses),
        "num_long_lines": evaluation.num_long_lines,
        "num_cut": evaluation.num_cut,
        "num_tokens": evaluation.num_tokens,
        "seconds": round(evaluation.seconds, 3),
        "tokens_per_second": round(evaluation.tokens_per_second, 1),
    }
    write_json(scores_path, values)
    return hypotheses_path, scores_path


def _cut_ids(tokenizer: TextTokenizer, lines: Sequence[str]) -> list[list[int]]:
    """Returns the token ids of each line with an end symbol, truncated to `MAX_CROSS_ENTROPY_LENGTH`."""
    return [[*ids, EOS_ID][:MAX_CROSS_ENTROPY_LENGTH] for ids in tokenizer.encode_batch(list(lines))]

"""Translates a corpus, scores it and writes both to files."""

import dataclasses
import itertools
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
from t2t_keras.text.tokenizer import Tokenizer

# A reference's tokens beyond this many are not counted: attention over them would need too much memory.
MAX_CROSS_ENTROPY_LENGTH = 1024


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """A translated and scored corpus.

    Attributes:
        hypotheses: one translation for each source line.
        scores: scores of the hypotheses.
        perplexity: perplexity per reference token, end symbols included; None if it was not computed.
        seconds: time of translating, without tracing the graph of the first line's search.
        num_tokens: number of tokens generated in that time, end symbols included.
        num_long_lines: number of source lines too long to be translated in one piece.
        num_cut: number of hypotheses that were cut at the limit of their length.
    """

    hypotheses: list[str]
    scores: list[Score]
    perplexity: float | None
    seconds: float
    num_tokens: int
    num_long_lines: int
    num_cut: int

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
    """Translates the sources and scores the result against the references, as the translator's task does.

    Args:
        translator: translates the sources.
        sources: lines of text, or requests.
        references: one for each source.
        settings: what the scores depend on; None means the defaults.
        on_progress: see `Translator.translate`.

    Raises:
        InputError: there are no lines, unequal numbers of them, or no tokeniser; raised before translating.
    """
    check_lines(sources, references)
    translator.task.check(references, settings or ScoringSettings())
    # Traces the graph or converts the model, once; for a line without text it would do nothing.
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
    model: Any, tokenizer: Tokenizer, sources: Sequence[str], targets: Sequence[str], tokens_per_batch: int = 2048
) -> tuple[float, int]:
    """The sum of the model's cross-entropy on target tokens, end symbols included, in nats, and the number of tokens.

    There is no label smoothing; exp(sum / count) is the perplexity per token. The text must be prepared as the training
    data was; sentences are cut after `MAX_CROSS_ENTROPY_LENGTH` tokens, end symbol included. Rows times padded tokens
    of the longer side stay within `tokens_per_batch`.

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


def target_perplexity(translator: Translator, sources: Sequence[str], references: Sequence[str]) -> float:
    """The perplexity of a token of what a translator's model should write for sources; raises as the cross-entropy."""
    check_lines(sources, references)
    sources = [translator.beginning(translator.repaired(line)) for line in sources]
    pairs = zip(sources, map(translator.repaired, references), strict=True)
    targets = list(itertools.starmap(translator.task.target, pairs))
    budget = translator.config.tokens_per_batch
    return perplexity(corpus_cross_entropy(translator.model, translator.tokenizer, sources, targets, budget))


def perplexity(cross_entropy: tuple[float, int]) -> float:
    """The perplexity from the result of `corpus_cross_entropy`; infinite above a float, perhaps not a number."""
    total, count = cross_entropy
    mean = total / count
    return math.inf if mean >= 700 else math.exp(mean)


def write_evaluation(
    output_dir: str | os.PathLike[str], evaluation: Evaluation, settings: dict[str, Any]
) -> tuple[pathlib.Path, pathlib.Path]:
    """Writes `hypotheses.txt`, one a line, and `scores.json` with the scores and `settings`; returns both paths.

    `output_dir` is created if missing; `settings` are JSON values that say what was evaluated. A perplexity that is no
    finite number is null. Raises an OSError if a file cannot be written.
    """
    directory = local_path(output_dir, "output_dir")
    directory.mkdir(parents=True, exist_ok=True)
    hypotheses_path, scores_path = directory / "hypotheses.txt", directory / "scores.json"
    with replacing(hypotheses_path) as file:
        file.writelines(f"{hypothesis}\n" for hypothesis in evaluation.hypotheses)
    perplexity = evaluation.perplexity
    values = {
        "settings": settings,
        "scores": [dataclasses.asdict(score) for score in evaluation.scores],
        "perplexity": perplexity if perplexity is not None and math.isfinite(perplexity) else None,
        "num_lines": len(evaluation.hypotheses),
        "num_long_lines": evaluation.num_long_lines,
        "num_cut": evaluation.num_cut,
        "num_tokens": evaluation.num_tokens,
        "seconds": round(evaluation.seconds, 3),
        "tokens_per_second": round(evaluation.tokens_per_second, 1),
    }
    write_json(scores_path, values)
    return hypotheses_path, scores_path


def _cut_ids(tokenizer: Tokenizer, lines: Sequence[str]) -> list[list[int]]:
    """The ids of each line with an end symbol, cut to `MAX_CROSS_ENTROPY_LENGTH`."""
    return [[*ids, EOS_ID][:MAX_CROSS_ENTROPY_LENGTH] for ids in tokenizer.encode_batch(list(lines))]

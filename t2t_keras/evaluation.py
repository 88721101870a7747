"""Translates a corpus, scores it and writes both to files.

Only "BLEU", "chrF" and "TER" are sacreBLEU's defaults, comparable with other scores of the same signature. The
tokenised variants are comparable only with the papers that used them.
"""

import dataclasses
import json
import logging
import math
import os
import pathlib
import re
import time
from collections.abc import Sequence
from typing import Any

import sacrebleu.metrics
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.inference.forced import token_log_probs_function
from t2t_keras.inference.request import Request
from t2t_keras.inference.translator import Translator
from t2t_keras.machine.files import replacing
from t2t_keras.search.batches import Progress, length_batches, padded
from t2t_keras.symbols import EOS_ID
from t2t_keras.text.languages import east_asian, written_in
from t2t_keras.text.tokenizer import Tokenizer

# A reference's tokens beyond this many are not counted: attention over them would need too much memory.
MAX_CROSS_ENTROPY_LENGTH = 1024

# As in the paper's evaluation: consecutive matches do not overlap, so "a-b-c" keeps its second hyphen.
_COMPOUND = re.compile(r"(\S)-(\S)")


@dataclasses.dataclass(frozen=True)
class Score:
    """One score of a corpus.

    Attributes:
        name: name of the measure.
        value: 0 to 100 (TER can exceed it).
        signature: sacreBLEU's signature, preceded by the processing before sacreBLEU.
        comparable_to: whose scores it may be compared with.
    """

    name: str
    value: float
    signature: str
    comparable_to: str


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """A translated and scored corpus.

    Attributes:
        hypotheses: one translation for each source line.
        scores: scores of the hypotheses.
        perplexity: perplexity per reference token, end symbols included; None if it was not computed.
        seconds: time of translating, without tracing the graph.
        num_tokens: number of tokens generated in that time, end symbols included.
        num_long_lines: number of source lines too long to be translated in one piece.
    """

    hypotheses: list[str]
    scores: list[Score]
    perplexity: float | None
    seconds: float
    num_tokens: int
    num_long_lines: int

    @property
    def tokens_per_second(self) -> float:
        """The number of generated tokens per second."""
        return self.num_tokens / max(self.seconds, 1e-9)


def evaluate(
    translator: Translator,
    sources: Sequence[str | Request],
    references: Sequence[str],
    target_language: str | None = None,
    *,
    lowercase: bool = False,
    paper_bleu: bool = False,
    on_progress: Progress | None = None,
) -> Evaluation:
    """Translates the sources and scores the result against the references.

    Args:
        translator: translates the sources.
        sources: lines of text, or requests.
        references: human translations, one for each source.
        target_language: language code, which selects the tokeniser; None detects Chinese, Japanese and Korean from the
            references and otherwise means English.
        lowercase: adds `lowercased_scores`.
        paper_bleu: adds `paper_bleu_score`.
        on_progress: see `Translator.translate`.

    Raises:
        InputError: there are no lines, unequal numbers of them, or no tokeniser; raised before translating.
    """
    _check_lines(sources, references)
    language = target_language or written_in(references) or "en"
    check_language(language, paper_bleu=paper_bleu)
    translator.translate(sources[:1], scored=False)  # traces the graph or converts the model, once
    start = time.perf_counter()
    translations = translator.translate(sources, on_progress, scored=False)
    seconds = time.perf_counter() - start
    hypotheses = [translation.text for translation in translations]
    scores = sacrebleu_scores(hypotheses, references, language)
    if lowercase:
        scores += lowercased_scores(hypotheses, references, language)
    if paper_bleu:
        scores.append(paper_bleu_score(hypotheses, references, language))
    return Evaluation(
        hypotheses,
        scores,
        None,
        seconds,
        sum(translation.num_tokens for translation in translations),
        sum(translation.num_parts > 1 for translation in translations),
    )


def check_language(target_language: str, *, paper_bleu: bool = False) -> None:
    """Raises an InputError if translations into a language cannot be scored, with `paper_bleu` by `paper_bleu_score`.

    The reason is that sacreBLEU's tokeniser is not installed, or that the language has no words between blanks.
    """
    _bleu_metric(target_language)
    if paper_bleu and east_asian(target_language):
        raise InputError(f"the paper's BLEU is of words between blanks, of which {target_language!r} has none")


def bleu(hypotheses: Sequence[str], references: Sequence[str], target_language: str | None = None) -> float:
    """sacreBLEU's BLEU of detokenised text, 0 to 100, to monitor training; `target_language` as in `sacrebleu_scores`.

    Where sacreBLEU's tokeniser for Japanese or Korean is not installed, it is computed on characters.
    """
    try:
        metric = _bleu_metric(target_language or written_in(references) or "")
    except InputError as error:
        logging.getLogger(__name__).warning("%s; until then BLEU is computed on characters", error)
        metric = sacrebleu.metrics.BLEU(tokenize="char")
    return metric.corpus_score(list(hypotheses), [list(references)]).score


def sacrebleu_scores(
    hypotheses: Sequence[str], references: Sequence[str], target_language: str | None = None
) -> list[Score]:
    """BLEU, chrF and TER with sacreBLEU's defaults, on cased, detokenised text.

    BLEU uses sacreBLEU's tokeniser for `target_language`: "zh", "ja-mecab", "ko-mecab", else "13a". None detects
    Chinese, Japanese and Korean from the references. TER splits at blanks.

    Raises:
        InputError: there are no lines, the numbers of lines differ, or the language's tokeniser is not installed.

    Reference: Post 2018, "A Call for Clarity in Reporting BLEU Scores".
    """
    _check_lines(hypotheses, references)
    everyone = "sacreBLEU scores of the same signature"
    in_words = _bleu_metric(target_language or written_in(references) or "")
    metrics = [("BLEU", in_words), ("chrF", sacrebleu.metrics.CHRF()), ("TER", sacrebleu.metrics.TER())]
    return [_score(name, metric, hypotheses, references, "", everyone) for name, metric in metrics]


def lowercased_scores(hypotheses: Sequence[str], references: Sequence[str], target_language: str) -> list[Score]:
    """BLEU on lowercased text: sacreBLEU's, and multi-bleu.perl's on Moses-tokenised text.

    Chinese, Japanese and Korean get only the former, because Moses finds no words in them. Arguments and errors as in
    `sacrebleu_scores`.

    Reference: for the latter, Wu et al. 2021, "Good for Misconceived Reasons: An Empirical Revisiting on the Need for
    Visual Context in Multimodal Machine Translation".
    """
    _check_lines(hypotheses, references)
    lowercased = _score(
        "BLEU lowercased",
        _bleu_metric(target_language, lowercase=True),
        hypotheses,
        references,
        "",
        "sacreBLEU scores of the same signature, not cased ones",
    )
    if east_asian(target_language):
        return [lowercased]
    import sacremoses  # imported here because it takes a third of a second

    moses = sacremoses.MosesTokenizer(lang=target_language)
    tokenised, tokenised_references = (
        [_moses(moses, line).lower() for line in lines] for lines in (hypotheses, references)
    )
    like_multi_bleu = _score(
        "BLEU tokenised lowercased",
        _multi_bleu(),
        tokenised,
        tokenised_references,
        f"moses:{target_language}+lowercase|",
        "multi-bleu.perl on lowercased, tokenised text; not sacreBLEU scores",
    )
    return [lowercased, like_multi_bleu]


def paper_bleu_score(hypotheses: Sequence[str], references: Sequence[str], target_language: str) -> Score:
    """BLEU as in the paper: Moses-tokenised, compounds split at hyphens (`##AT##-##AT##`).

    As in the authors' script, Unicode punctuation is replaced first (replace-unicode-punctuation.perl). The authors'
    references were already tokenised; here they are processed like the hypotheses. Scores are mostly higher than
    sacreBLEU's.

    Raises an InputError as `sacrebleu_scores`, or if the language has no words between blanks.
    """
    _check_lines(hypotheses, references)
    check_language(target_language, paper_bleu=True)
    import sacremoses

    moses, punctuation = sacremoses.MosesTokenizer(lang=target_language), sacremoses.MosesPunctNormalizer()
    plain = ([punctuation.replace_unicode_punct(line) for line in lines] for lines in (hypotheses, references))
    split, split_references = ([split_compounds(_moses(moses, line)) for line in lines] for lines in plain)
    return _score(
        "BLEU tokenised, compounds split",
        _multi_bleu(),
        split,
        split_references,
        f"moses:{target_language}+punctuation+compounds|",
        "the paper's table 2; not sacreBLEU scores, which are mostly lower",
    )


def split_compounds(line: str) -> str:
    """Separates the hyphens of compounds in a tokenised line as tokens."""
    return _COMPOUND.sub(r"\1 ##AT##-##AT## \2", line)


def corpus_cross_entropy(
    model: Any,
    tokenizer: Tokenizer,
    sources: Sequence[str],
    targets: Sequence[str],
    tokens_per_batch: int = 2048,
) -> tuple[float, int]:
    """The sum of the model's cross-entropy on target tokens, end symbols included, in nats, and the number of tokens.

    There is no label smoothing; exp(sum / count) is the perplexity per token. The text must be prepared as the training
    data was; sentences are cut after `MAX_CROSS_ENTROPY_LENGTH` tokens, end symbol included. Rows times padded tokens
    of the longer side stay within `tokens_per_batch`.

    Raises:
        InputError: there are no lines, or the numbers of lines differ.
    """
    _check_lines(sources, targets)
    encoded = [_cut_ids(tokenizer, lines) for lines in (sources, targets)]
    lengths = [max(len(source), len(target)) for source, target in zip(*encoded, strict=True)]

    token_log_probs = token_log_probs_function(model)
    total = 0.0
    for rows in length_batches(lengths, tokens_per_batch):
        source, target = (padded([side[row] for row in rows]) for side in encoded)
        total -= float(tf.reduce_sum(token_log_probs(source, target)))
    return total, sum(map(len, encoded[1]))


def perplexity(cross_entropy: tuple[float, int]) -> float:
    """The perplexity from the result of `corpus_cross_entropy`; infinite if it exceeds a float."""
    total, count = cross_entropy
    mean = total / count
    return math.exp(mean) if mean < 700 else math.inf


def write_evaluation(
    output_dir: str | os.PathLike[str], evaluation: Evaluation, settings: dict[str, Any]
) -> tuple[pathlib.Path, pathlib.Path]:
    """Writes `hypotheses.txt`, one a line, and `scores.json` with the scores and `settings`; returns both paths.

    `output_dir` is created if missing; `settings` are JSON values that say what was evaluated. Raises an OSError if a
    file cannot be written.
    """
    directory = pathlib.Path(output_dir)
    directory.mkdir(parents=True, exist_ok=True)
    hypotheses_path, scores_path = directory / "hypotheses.txt", directory / "scores.json"
    with replacing(hypotheses_path) as file:
        file.writelines(f"{hypothesis}\n" for hypothesis in evaluation.hypotheses)
    values = {
        "settings": settings,
        "scores": [dataclasses.asdict(score) for score in evaluation.scores],
        "perplexity": evaluation.perplexity,
        "num_lines": len(evaluation.hypotheses),
        "num_long_lines": evaluation.num_long_lines,
        "num_tokens": evaluation.num_tokens,
        "seconds": round(evaluation.seconds, 3),
        "tokens_per_second": round(evaluation.tokens_per_second, 1),
    }
    with replacing(scores_path) as file:
        file.write(json.dumps(values, indent=2, ensure_ascii=False) + "\n")
    return hypotheses_path, scores_path


def _check_lines(lines: Sequence[str | Request], references: Sequence[str]) -> None:
    if not lines:
        raise InputError("there is nothing to evaluate: the text has no lines")
    if len(lines) != len(references):
        raise InputError(f"unequal numbers of lines: {len(lines)} to evaluate, {len(references)} references")


def _score(
    name: str,
    metric: Any,
    hypotheses: Sequence[str],
    references: Sequence[str],
    before: str,
    comparable_to: str,
) -> Score:
    value = metric.corpus_score(list(hypotheses), [list(references)]).score
    return Score(name, float(value), before + str(metric.get_signature()), comparable_to)


def _bleu_metric(language: str, *, lowercase: bool = False) -> sacrebleu.metrics.BLEU:
    """sacreBLEU's BLEU with its tokeniser for a language; raises an InputError if that is not installed."""
    code = east_asian(language) or ""
    try:
        return sacrebleu.metrics.BLEU(lowercase=lowercase, trg_lang=code)
    except RuntimeError as error:
        raise InputError(
            f"BLEU of target language {language!r} needs a tokeniser that is not installed: "
            f"pip install 'sacrebleu[{code}]'"
        ) from error


def _multi_bleu() -> Any:
    """BLEU as in multi-bleu.perl: tokens are separated by blanks, and nothing is smoothed."""
    return sacrebleu.metrics.BLEU(tokenize="none", smooth_method="none", force=True)


def _moses(moses: Any, line: str) -> str:
    return moses.tokenize(line, return_str=True)


def _cut_ids(tokenizer: Tokenizer, lines: Sequence[str]) -> list[list[int]]:
    """The ids of each line with an end symbol, cut to `MAX_CROSS_ENTROPY_LENGTH`."""
    return [[*ids, EOS_ID][:MAX_CROSS_ENTROPY_LENGTH] for ids in tokenizer.encode_batch(list(lines))]

"""Translate a corpus, score it, and write both down.

Scores have names that say what they are: only "BLEU", "chrF" and "TER" are sacreBLEU's
defaults, to be compared with other people's of the same signature. The tokenised
variants serve for comparison with the papers that used them, and with nothing else.
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
    """One number about a corpus.

    Attributes:
        name: what was measured.
        value: the number, 0 to 100 (TER can exceed it).
        signature: how, as sacreBLEU writes it; what was done before sacreBLEU saw the text stands in front.
        comparable_to: whose numbers it may be compared with.
    """

    name: str
    value: float
    signature: str
    comparable_to: str


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """A corpus translated and scored.

    Attributes:
        hypotheses: a translation a source line.
        scores: of the hypotheses.
        perplexity: a token of the references, end symbols counted; None if it was not computed.
        seconds: that translating took, the first batch's tracing not counted.
        num_tokens: generated in that time, end symbols counted.
        num_long_lines: source lines that were too long to be translated in one piece.
    """

    hypotheses: list[str]
    scores: list[Score]
    perplexity: float | None
    seconds: float
    num_tokens: int
    num_long_lines: int

    @property
    def tokens_per_second(self) -> float:
        """Generated tokens over seconds."""
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
        translator: what translates.
        sources: lines of text, or requests.
        references: as many lines, their translations by people.
        target_language: code, chooses what the scores take for words; None: Chinese, Japanese or Korean if the
            references are written so, else English.
        lowercase: adds the scores of `lowercased_scores`.
        paper_bleu: adds the score of `paper_bleu_score`.
        on_progress: see `Translator.translate`.

    Raises:
        InputError: there are no lines, or not as many references as sources, or there is no tokeniser for the
            language; raised before anything is translated.
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
    """Checks that translations into a language can be scored, before they are made.

    Args:
        target_language: code.
        paper_bleu: whether `paper_bleu_score` is wanted.

    Raises:
        InputError: sacreBLEU's tokeniser for the language is not installed, or it has no words between blanks.
    """
    _bleu_metric(target_language)
    if paper_bleu and east_asian(target_language):
        raise InputError(f"the paper's BLEU is of words between blanks, of which {target_language!r} has none")


def bleu(hypotheses: Sequence[str], references: Sequence[str], target_language: str | None = None) -> float:
    """sacreBLEU's BLEU alone, 0 to 100, to watch a training by.

    Where sacreBLEU's tokeniser of Japanese or Korean is not installed, characters are taken for words.

    Args:
        hypotheses: detokenised text.
        references: detokenised text.
        target_language: code; None: Chinese, Japanese or Korean if the references are written so.
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
    """BLEU, chrF and TER as sacreBLEU computes them by default, on cased, detokenised text.

    BLEU's words are those of sacreBLEU's tokeniser for the language: "zh", "ja-mecab", "ko-mecab", else "13a". TER
    knows none but those between blanks.

    Args:
        hypotheses: detokenised text.
        references: detokenised text.
        target_language: code; None: Chinese, Japanese or Korean if the references are written so.

    Raises:
        InputError: there are no lines, or unequal numbers of them; or the language's tokeniser is not installed.

    Reference:
        Post 2018, "A Call for Clarity in Reporting BLEU Scores".
    """
    _check_lines(hypotheses, references)
    everyone = "sacreBLEU scores of the same signature"
    in_words = _bleu_metric(target_language or written_in(references) or "")
    metrics = [("BLEU", in_words), ("chrF", sacrebleu.metrics.CHRF()), ("TER", sacrebleu.metrics.TER())]
    return [_score(name, metric, hypotheses, references, "", everyone) for name, metric in metrics]


def lowercased_scores(hypotheses: Sequence[str], references: Sequence[str], target_language: str) -> list[Score]:
    """BLEU on lowercased text: sacreBLEU's own, and on Moses-tokenised text.

    Chinese, Japanese and Korean have the former alone: Moses finds no words in them.

    Args:
        hypotheses: detokenised text.
        references: detokenised text.
        target_language: code, chooses the tokenisers' rules.

    Raises:
        InputError: there are no lines, or unequal numbers of them; or the language's tokeniser is not installed.

    Reference:
        The latter is multi-bleu.perl's number, as in Wu et al. 2021, "Good for
        Misconceived Reasons: An Empirical Revisiting on the Need for Visual Context in
        Multimodal Machine Translation".
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
    import sacremoses  # here, for it takes a third of a second to load

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
    """BLEU as the paper has it: Moses-tokenised, compounds split at hyphens (`##AT##-##AT##`).

    As in the authors' script, Unicode punctuation such as curly quotation marks is replaced first, as
    replace-unicode-punctuation.perl does; their references came tokenised, ours are treated as the hypotheses are.
    The score is mostly higher than sacreBLEU's for the same translations.

    Args:
        hypotheses: detokenised text.
        references: detokenised text.
        target_language: code, chooses the Moses tokeniser's rules.

    Raises:
        InputError: there are no lines, or unequal numbers of them; or the language has no words between blanks.
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
    """A tokenised line with the hyphen of each compound as a token of its own."""
    return _COMPOUND.sub(r"\1 ##AT##-##AT## \2", line)


def corpus_cross_entropy(
    model: Any,
    tokenizer: Tokenizer,
    sources: Sequence[str],
    targets: Sequence[str],
    tokens_per_batch: int = 2048,
) -> tuple[float, int]:
    """The model's cross-entropy on given translations, in nats, without label smoothing.

    exp(sum / count) is the perplexity a token. Sentences are cut after
    `MAX_CROSS_ENTROPY_LENGTH` tokens, end symbol included.

    Args:
        model: as of `t2t_keras.inference.forced.token_log_probs`.
        tokenizer: of the model's vocabulary.
        sources: text, prepared as the training data were.
        targets: its translations.
        tokens_per_batch: most rows times padded tokens of the longer side.

    Returns:
        The sum over all target tokens, end symbols included, and their number.

    Raises:
        InputError: there are no lines, or unequal numbers of them.
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
    """exp of the mean of what `corpus_cross_entropy` gives; infinite when it is beyond a float."""
    total, count = cross_entropy
    mean = total / count
    return math.exp(mean) if mean < 700 else math.inf


def write_evaluation(
    output_dir: str | os.PathLike[str], evaluation: Evaluation, settings: dict[str, Any]
) -> tuple[pathlib.Path, pathlib.Path]:
    """Writes `hypotheses.txt`, a line each, and beside it `scores.json`.

    Args:
        output_dir: made if it is missing.
        evaluation: what to write.
        settings: plain values that say what was evaluated; they stand in `scores.json` too.

    Returns:
        The paths of the two files.

    Raises:
        OSError: they cannot be written.
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
    """sacreBLEU's BLEU with its tokeniser for a language.

    Raises:
        InputError: the tokeniser is not installed.
    """
    code = east_asian(language) or ""
    try:
        return sacrebleu.metrics.BLEU(lowercase=lowercase, trg_lang=code)
    except RuntimeError as error:
        raise InputError(
            f"BLEU of target language {language!r} needs a tokeniser that is not installed: "
            f"pip install 'sacrebleu[{code}]'"
        ) from error


def _multi_bleu() -> Any:
    """multi-bleu.perl: blanks separate the tokens, nothing is smoothed."""
    return sacrebleu.metrics.BLEU(tokenize="none", smooth_method="none", force=True)


def _moses(moses: Any, line: str) -> str:
    return moses.tokenize(line, return_str=True)


def _cut_ids(tokenizer: Tokenizer, lines: Sequence[str]) -> list[list[int]]:
    """The ids of each line with an end symbol, at most `MAX_CROSS_ENTROPY_LENGTH` of them."""
    return [[*ids, EOS_ID][:MAX_CROSS_ENTROPY_LENGTH] for ids in tokenizer.encode_batch(list(lines))]

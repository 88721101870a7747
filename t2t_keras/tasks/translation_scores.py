"""BLEU, chrF and TER of translations.

Only "BLEU", "chrF" and "TER" are sacreBLEU's defaults, comparable with other scores of the same signature. The
tokenised variants are comparable only with the papers that used them.
"""

import logging
import re
from collections.abc import Sequence
from typing import Any

import sacrebleu.metrics

from t2t_keras.errors import InputError
from t2t_keras.tasks.score import Score, check_lines
from t2t_keras.text.languages import base_language, east_asian, written_in

# As in the paper's evaluation: consecutive matches do not overlap, so "a-b-c" keeps its second hyphen.
_COMPOUND = re.compile(r"(\S)-(\S)")


def check_language(target_language: str, *, paper_bleu: bool = False) -> None:
    """Raises an InputError if translations into a language cannot be scored, with `paper_bleu` by `paper_bleu_score`.

    The reason is that sacreBLEU's tokeniser is not installed, or that Moses has no rules of the language.
    """
    _bleu_metric(target_language)
    if paper_bleu and east_asian(target_language):
        raise InputError(f"the paper's BLEU is of words by Moses, which has no rules of {target_language!r}")


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
    """BLEU, chrF and TER with sacreBLEU's defaults, on detokenised text; TER does not distinguish case, the others do.

    BLEU uses sacreBLEU's tokeniser for `target_language`: "zh", "ja-mecab", "ko-mecab", else "13a". None detects
    Chinese, Japanese and Korean from the references. TER splits at blanks.

    Raises:
        InputError: there are no lines, the numbers of lines differ, or the language's tokeniser is not installed.

    Reference: Post 2018, "A Call for Clarity in Reporting BLEU Scores".
    """
    check_lines(hypotheses, references)
    everyone = "sacreBLEU scores of the same signature"
    in_words = _bleu_metric(target_language or written_in(references) or "")
    metrics = [("BLEU", in_words), ("chrF", sacrebleu.metrics.CHRF()), ("TER", sacrebleu.metrics.TER())]
    return [_score(name, metric, hypotheses, references, "", everyone) for name, metric in metrics]


def sentence_chrf(hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    """chrF of each hypothesis alone, 0 to 100, to find good and bad ones; raises as `sacrebleu_scores`."""
    check_lines(hypotheses, references)
    metric = sacrebleu.metrics.CHRF()
    return [
        float(metric.sentence_score(hypothesis, [reference]).score)
        for hypothesis, reference in zip(hypotheses, references, strict=True)
    ]


def lowercased_scores(hypotheses: Sequence[str], references: Sequence[str], target_language: str) -> list[Score]:
    """BLEU on lowercased text: sacreBLEU's, and multi-bleu.perl's on Moses-tokenised text.

    Chinese, Japanese and Korean get only the former, because Moses finds no words in them. Arguments and errors as in
    `sacrebleu_scores`.

    Reference: for the latter, Wu et al. 2021, "Good for Misconceived Reasons: An Empirical Revisiting on the Need for
    Visual Context in Multimodal Machine Translation".
    """
    check_lines(hypotheses, references)
    metric, others = _bleu_metric(target_language, lowercase=True), "sacreBLEU scores of the same signature"
    lowercased = _score("BLEU lowercased", metric, hypotheses, references, "", f"{others}, not cased ones")
    if east_asian(target_language):
        return [lowercased]
    import sacremoses  # imported here because it takes a third of a second

    language = _moses_language(target_language)
    moses = sacremoses.MosesTokenizer(lang=language)
    tokenised, tokenised_references = (
        [_moses(moses, line).lower() for line in lines] for lines in (hypotheses, references)
    )
    before, others = f"moses:{language}+lowercase|", "multi-bleu.perl on lowercased, tokenised text"
    sides = (tokenised, tokenised_references, before, f"{others}; not sacreBLEU scores")
    return [lowercased, _score("BLEU tokenised lowercased", _multi_bleu(), *sides)]


def _moses_language(target_language: str) -> str:
    """The language by whose abbreviations Moses tokenises; warns where it has those of English alone."""
    from sacremoses.corpus import NonbreakingPrefixes

    language = base_language(target_language)
    if language not in NonbreakingPrefixes().available_langs.values():
        logging.getLogger(__name__).warning("Moses has no rules of %r: words are split as in English", language)
    return language


def paper_bleu_score(hypotheses: Sequence[str], references: Sequence[str], target_language: str) -> Score:
    """BLEU as in the paper: Moses-tokenised, compounds split at hyphens (`##AT##-##AT##`).

    As in the authors' script, Unicode punctuation is replaced first (replace-unicode-punctuation.perl). The authors'
    references were already tokenised; here they are processed like the hypotheses. Scores are mostly higher than
    sacreBLEU's.

    Raises an InputError as `sacrebleu_scores`, or for Chinese, Japanese and Korean.
    """
    check_lines(hypotheses, references)
    check_language(target_language, paper_bleu=True)
    import sacremoses

    language = _moses_language(target_language)
    moses, punctuation = sacremoses.MosesTokenizer(lang=language), sacremoses.MosesPunctNormalizer()
    plain = ([punctuation.replace_unicode_punct(line) for line in lines] for lines in (hypotheses, references))
    split, split_references = ([split_compounds(_moses(moses, line)) for line in lines] for lines in plain)
    return _score(
        "BLEU tokenised, compounds split",
        _multi_bleu(),
        split,
        split_references,
        f"moses:{language}+punctuation+compounds|",
        "the paper's table 2; not sacreBLEU scores, which are mostly lower",
    )


def split_compounds(line: str) -> str:
    """Separates the hyphens of compounds in a tokenised line as tokens."""
    return _COMPOUND.sub(r"\1 ##AT##-##AT## \2", line)


def _score(
    name: str, metric: Any, hypotheses: Sequence[str], references: Sequence[str], before: str, comparable_to: str
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

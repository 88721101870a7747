"""BLEU, chrF and TER of translations.

Only "BLEU", "chrF" and "TER" use the defaults of sacreBLEU, and are comparable with other scores of the same signature.
The tokenised variants are comparable only with the same variants in papers.
"""

import logging
import re
from collections.abc import Sequence
from typing import Any

import sacrebleu.metrics

from t2t_keras.errors import InputError
from t2t_keras.tasks.score import Score, check_lines
from t2t_keras.text.language_codes import base_language
from t2t_keras.text.languages import east_asian, written_in

# As in the paper's evaluation: consecutive matches do not overlap, so "a-b-c" keeps its second hyphen.
_COMPOUND = re.compile(r"(\S)-(\S)")


def check_language(target_language: str, *, paper_bleu: bool = False) -> None:
    """Checks that translations into a language can be scored.

    Args:
        target_language: language code.
        paper_bleu: whether to also check `paper_bleu_score`.

    Raises:
        InputError: sacreBLEU's tokeniser is not installed or, with `paper_bleu`, Moses has no rules for the language.
    """
    _bleu_metric(target_language)
    if paper_bleu and east_asian(target_language):
        raise InputError(
            f"the paper's BLEU uses words of the Moses tokenizer, which has no rules for {target_language!r}"
        )


def bleu(hypotheses: Sequence[str], references: Sequence[str], target_language: str | None = None) -> float:
    """Returns sacreBLEU's BLEU of detokenised text, 0 to 100, to monitor training.

    If sacreBLEU's tokeniser for Japanese or Korean is not installed, BLEU is computed on characters, with a warning.
    `target_language` is as in `sacrebleu_scores`.
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
    """Returns BLEU, chrF and TER of detokenised text, with the defaults of sacreBLEU.

    BLEU and chrF are case-sensitive, TER is not. TER splits text at spaces.

    Args:
        hypotheses: the translations.
        references: a reference for each translation.
        target_language: language code, which selects the tokeniser of BLEU: "zh", "ja-mecab", "ko-mecab", else "13a".
            None detects Chinese, Japanese and Korean from the references.

    Raises:
        InputError: there are no lines, the numbers of lines differ, or the tokeniser is not installed.

    Reference: Post 2018, "A Call for Clarity in Reporting BLEU Scores".
    """
    check_lines(hypotheses, references)
    comparable_to = "sacreBLEU scores of the same signature"
    in_words = _bleu_metric(target_language or written_in(references) or "")
    metrics = [("BLEU", in_words), ("chrF", sacrebleu.metrics.CHRF()), ("TER", sacrebleu.metrics.TER())]
    return [_score(name, metric, hypotheses, references, "", comparable_to) for name, metric in metrics]


def sentence_chrf(hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    """Returns the chrF of each hypothesis, 0 to 100; raises an InputError if the numbers of lines differ or are 0."""
    check_lines(hypotheses, references)
    metric = sacrebleu.metrics.CHRF()
    return [
        float(metric.sentence_score(hypothesis, [reference]).score)
        for hypothesis, reference in zip(hypotheses, references, strict=True)
    ]


def sentence_bleu(hypotheses: Sequence[str], references: Sequence[str], target_language: str) -> list[float]:
    """Returns the BLEU of each hypothesis, 0 to 100, smoothed and with effective order as in `sacrebleu.sentence_bleu`.

    `target_language` selects the tokeniser as in `sacrebleu_scores`.

    Raises:
        InputError: there are no lines, the numbers of lines differ, or the tokeniser is not installed.
    """
    check_lines(hypotheses, references)
    metric = _bleu_metric(target_language, effective_order=True)
    return [
        float(metric.sentence_score(hypothesis, [reference]).score)
        for hypothesis, reference in zip(hypotheses, references, strict=True)
    ]


def lowercased_scores(hypotheses: Sequence[str], references: Sequence[str], target_language: str) -> list[Score]:
    """Returns BLEU of lowercased text: sacreBLEU's, and that of multi-bleu.perl on Moses-tokenised text.

    Chinese, Japanese and Korean get only the first score, because Moses cannot split them into words. Arguments and
    errors are as in `sacrebleu_scores`.

    Reference: for the second score, Wu et al. 2021, "Good for Misconceived Reasons: An Empirical Revisiting on the Need
    for Visual Context in Multimodal Machine Translation".
    """
    check_lines(hypotheses, references)
    metric, comparable_to = _bleu_metric(target_language, lowercase=True), "sacreBLEU scores of the same signature"
    lowercased = _score("BLEU lowercased", metric, hypotheses, references, "", f"{comparable_to}, not cased ones")
    if east_asian(target_language):
        return [lowercased]
    import sacremoses  # imported here because it takes a third of a second

    language = _moses_language(target_language)
    moses = sacremoses.MosesTokenizer(lang=language)
    tokenised, tokenised_references = (
        [_moses(moses, line).lower() for line in lines] for lines in (hypotheses, references)
    )
    prefix, comparable_to = f"moses:{language}+lowercase|", "multi-bleu.perl on lowercased, tokenised text"
    sides = (tokenised, tokenised_references, prefix, f"{comparable_to}; not sacreBLEU scores")
    return [lowercased, _score("BLEU tokenised lowercased", _multi_bleu(), *sides)]


def _moses_language(target_language: str) -> str:
    """Returns the language code for Moses; warns if Moses has no rules for it and uses those of English."""
    from sacremoses.corpus import NonbreakingPrefixes

    language = base_language(target_language)
    if language not in NonbreakingPrefixes().available_langs.values():
        logging.getLogger(__name__).warning("Moses has no rules for %r: words are split as in English", language)
    return language


def paired_bootstrap(
    baseline: Sequence[str], hypotheses: Sequence[str], references: Sequence[str], target_language: str
) -> tuple[float, float]:
    """Compares two systems by sacreBLEU's paired bootstrap with 1,000 samples, which are the same in each call.

    Args:
        baseline: translations of one system.
        hypotheses: translations of the other system.
        references: a reference for each line.
        target_language: selects the tokeniser of BLEU as in `sacrebleu_scores`.

    Returns:
        BLEU of the hypotheses minus that of the baseline; and the probability of a difference of at least this size
        between systems of equal quality.

    Raises:
        InputError: there are no lines, the numbers of lines differ, or the tokeniser is not installed.

    Reference: Koehn 2004, "Statistical Significance Tests for Machine Translation Evaluation".
    """
    from sacrebleu.significance import PairedTest

    for lines in (baseline, hypotheses):
        check_lines(lines, references)
    systems = [("baseline", list(baseline)), ("other", list(hypotheses))]
    metrics = {"BLEU": _bleu_metric(target_language)}
    _, scores = PairedTest(systems, metrics, [list(references)], test_type="bs", n_samples=1000)()
    first, second = scores["BLEU"]
    return float(second.score - first.score), float(second.p_value)


def paper_bleu_score(hypotheses: Sequence[str], references: Sequence[str], target_language: str) -> Score:
    """Returns BLEU as in the paper: text is tokenised by Moses, and compounds are split at hyphens (`##AT##-##AT##`).

    As in the script of the authors, Unicode punctuation is replaced first (replace-unicode-punctuation.perl). Their
    references were already tokenised; here, references are processed in the same way as hypotheses. Scores are mostly
    higher than those of sacreBLEU.

    Raises:
        InputError: as in `sacrebleu_scores`, or the language is Chinese, Japanese or Korean.
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
    """Splits compounds in a tokenised line at their hyphens, which become separate tokens."""
    return _COMPOUND.sub(r"\1 ##AT##-##AT## \2", line)


def _score(
    name: str, metric: Any, hypotheses: Sequence[str], references: Sequence[str], prefix: str, comparable_to: str
) -> Score:
    value = metric.corpus_score(list(hypotheses), [list(references)]).score
    return Score(name, float(value), prefix + str(metric.get_signature()), comparable_to)


def _bleu_metric(language: str, *, lowercase: bool = False, effective_order: bool = False) -> sacrebleu.metrics.BLEU:
    """Returns sacreBLEU's BLEU with the tokeniser for a language; raises an InputError if it is not installed."""
    code = east_asian(language) or ""
    try:
        return sacrebleu.metrics.BLEU(lowercase=lowercase, effective_order=effective_order, trg_lang=code)
    except RuntimeError as error:
        raise InputError(
            f"BLEU of target language {language!r} needs a tokenizer that is not installed: "
            f"pip install 'sacrebleu[{code}]'"
        ) from error


def _multi_bleu() -> Any:
    """Returns BLEU as in multi-bleu.perl: tokens are separated by spaces, without smoothing."""
    return sacrebleu.metrics.BLEU(tokenize="none", smooth_method="none", force=True)


def _moses(moses: Any, line: str) -> str:
    return moses.tokenize(line, return_str=True)

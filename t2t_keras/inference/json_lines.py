"""Reads requests and writes translations in the JSON Lines format."""

import itertools
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from t2t_keras.errors import InputError
from t2t_keras.inference.translation import TermUse, Translation
from t2t_keras.text.text_tokenizer import TextTokenizer

if TYPE_CHECKING:
    from t2t_keras.inference.explain import WordAlignment
    from t2t_keras.inference.forced import ForcedScore
    from t2t_keras.inference.request import Request
    from t2t_keras.inference.translator import Translator

_TEXTS = ("text", "prefix")
_LISTS = ("constraints", "excluded")
_DIGITS = 6  # decimal places
_KEYS = (*_TEXTS, *_LISTS, "id")


class Line(NamedTuple):
    """A line of input.

    Attributes:
        number: the line's number, counted from 1.
        request: the request; "" if the line is invalid.
        id: a JSON value that the answer repeats, or None.
        error: why the line is invalid; "" if it is valid.
    """

    number: int
    request: "Request | str"
    id: Any = None
    error: str = ""


def parsed(number: int, text: str) -> Line:
    """Parses a line: a JSON object with "text" and optionally other fields of `Request` and "id"."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Line(number, "", None, f"not valid JSON: {error}")
    if not isinstance(values, dict):
        return Line(number, "", None, f"expected a JSON object with 'text', got {text.strip()[:40]}")
    try:
        json.dumps(values.get("id"), allow_nan=False)
    except ValueError:
        return Line(number, "", None, "'id' contains a number that JSON cannot represent")
    line = Line(number, "", values.get("id"))
    try:
        return line._replace(request=_request(values))
    except InputError as error:
        return line._replace(error=str(error))


def _request(values: dict[str, Any]) -> "Request":
    from t2t_keras.inference.request import Request  # imports TensorFlow, which takes seconds

    if unknown := [key for key in values if key not in _KEYS]:
        raise InputError(f"unknown key {unknown[0]!r}; valid: {', '.join(_KEYS)}")
    if "text" not in values:
        raise InputError("the key 'text' is missing")
    for key in _TEXTS:
        if not isinstance(values.get(key, ""), str):
            raise InputError(f"{key!r} must be a string, got {values[key]!r}")
    constraints, excluded = (values.get(key, []) for key in _LISTS)
    if not _is_list_of_strings(excluded):
        raise InputError(f"'excluded' must be a list of strings, got {excluded!r}")
    if not isinstance(constraints, list) or not all(isinstance(c, str) or _is_list_of_strings(c) for c in constraints):
        raise InputError(f"'constraints' must be a list of strings or of lists of strings, got {constraints!r}")
    alternatives = tuple(one if isinstance(one, str) else tuple(one) for one in constraints)
    return Request(values["text"], values.get("prefix", ""), alternatives, tuple(excluded))


def _is_list_of_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def answers(
    translator: "Translator",
    translations: Sequence[Sequence[Translation]],
    token_scores: bool = False,
    alignments: bool = False,
    as_lists: bool = False,
) -> list[dict[str, Any]]:
    """Returns the JSON object of each line.

    The object describes the best translation. If the line contains terms of the glossary, "terms" lists how each was
    translated. If it has characters that the training text never had, "unknown_characters" lists the spans with
    them, which were not translated. If it has several sentences, "sentences" holds an object of the same form for each,
    with its "source".

    Args:
        translator: the translator.
        translations: the translations of each line, best first.
        token_scores: whether to add "pieces" and "token_log_probs".
        alignments: whether to add "source_pieces", "pieces" and "alignment".
        as_lists: whether to add the objects of all translations of a line as "nbest".
    """
    flat = [translation for hypotheses in translations for translation in hypotheses]
    tokens = [ids for each in flat for ids in each.source_ids], [ids for each in flat for ids in each.token_ids]
    details = _Details(
        translator.score_tokens(*tokens) if token_scores else None,
        translator.align_tokens(*tokens) if alignments else None,
    )
    ends = itertools.accumulate((len(each.token_ids) for each in flat), initial=0)
    parts = [details.part(start, start + len(each.token_ids)) for each, start in zip(flat, ends, strict=False)]
    values = iter([_value(translator, *each) for each in zip(flat, parts, strict=True)])
    rows = [[next(values) for _ in hypotheses] for hypotheses in translations]
    return [{**row[0], "nbest": row} if as_lists else row[0] for row in rows]


class _Details(NamedTuple):
    """Token scores and word alignments, one per part of each translation; None if they were not requested."""

    scores: "list[ForcedScore] | None"
    alignments: "list[WordAlignment] | None"

    def part(self, start: int, end: int) -> "_Details":
        """Returns the details of the parts from `start` to before `end`."""
        scores, alignments = self
        return _Details(scores and scores[start:end], alignments and alignments[start:end])


def _value(translator: "Translator", translation: Translation, details: _Details) -> dict[str, Any]:
    """Returns the JSON object of a translation, given the details of its parts."""
    value: dict[str, Any] = {
        "translation": translation.text,
        "score": round(translation.score, _DIGITS),
        "log_prob": round(translation.log_prob, _DIGITS),
        "num_tokens": translation.num_tokens,
    }
    if translation.terms:
        value["terms"] = [_term(term) for term in translation.terms]
    if translation.unknown:
        value["unknown_characters"] = list(translation.unknown)
    if any(each is not None for each in details):
        value["pieces"] = _pieces(translator.tokenizer, translation.token_ids)
    if details.scores is not None:
        log_probs = [log_prob for score in details.scores for log_prob in score.token_log_probs]
        value["token_log_probs"] = [round(log_prob, _DIGITS) for log_prob in log_probs]
    if details.alignments is not None:
        value["source_pieces"] = _pieces(translator.tokenizer.source, translation.source_ids)
        from t2t_keras.inference.explain import join_word_alignments  # imports TensorFlow, which takes seconds

        value["alignment"] = str(join_word_alignments(details.alignments))
    if translation.sentences:
        value["sentences"] = []
    start = 0
    for each in translation.sentences:
        sentence_details = details.part(start, start := start + len(each.translation.token_ids))
        value["sentences"].append({"source": each.source, **_value(translator, each.translation, sentence_details)})
    return value


def _term(term: TermUse) -> dict[str, Any]:
    return {"source": term.source, "form": term.form or None, "forced": term.is_forced}


def _pieces(tokenizer: TextTokenizer, parts: Sequence[Sequence[int]]) -> list[str]:
    return tokenizer.pieces([id for ids in parts for id in ids])

"""Reads and writes JSON lines: requests for translation, and answers."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from t2t_keras.errors import InputError
from t2t_keras.inference.translation import TermUse, Translation
from t2t_keras.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from t2t_keras.inference.request import Request
    from t2t_keras.inference.translator import Translator

_TEXTS = ("text", "prefix")
_LISTS = ("constraints", "excluded")
_DIGITS = 6  # decimal places
_KEYS = (*_TEXTS, *_LISTS, "id")


class Line(NamedTuple):
    """A line of input.

    Attributes:
        number: its number, from 1.
        request: what to translate; "" if the line cannot be read.
        id: a JSON value that the answer repeats, or None.
        error: why it cannot be translated, or "" if it can.
    """

    number: int
    request: "Request | str"
    id: Any = None
    error: str = ""


def parsed(number: int, text: str) -> Line:
    """Parses a line of JSON: an object with "text" and optionally other fields of `Request`, and "id"."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Line(number, "", None, f"not valid JSON: {error}")
    if not isinstance(values, dict):
        return Line(number, "", None, f"expected a JSON object with 'text', got {text.strip()[:40]}")
    try:
        json.dumps(values.get("id"), allow_nan=False)
    except ValueError:
        return Line(number, "", None, "'id' has a number that JSON cannot repeat")
    line = Line(number, "", values.get("id"))
    try:
        return line._replace(request=_request(values))
    except InputError as error:
        return line._replace(error=str(error))


def _request(values: dict[str, Any]) -> "Request":
    from t2t_keras.inference.request import Request  # with TensorFlow, which takes seconds

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
    """The JSON object for each line: its best translation and, with `as_lists`, all under "nbest".

    `token_scores` adds "pieces" and "token_log_probs"; `alignments` adds "source_pieces", "pieces" and "alignment".
    What became of a glossary's terms is under "terms", if the line has any.
    """
    flat = [translation for hypotheses in translations for translation in hypotheses]
    values: list[dict[str, Any]] = [
        {
            "translation": translation.text,
            "score": round(translation.score, _DIGITS),
            "log_prob": round(translation.log_prob, _DIGITS),
            "num_tokens": translation.num_tokens,
            **({"terms": [_term(term) for term in translation.terms]} if translation.terms else {}),
        }
        for translation in flat
    ]
    if token_scores or alignments:
        for value, details in zip(values, _details(translator, flat, token_scores, alignments), strict=True):
            value.update(details)
    remaining = iter(values)
    rows = [[next(remaining) for _ in hypotheses] for hypotheses in translations]
    return [{**row[0], "nbest": row} if as_lists else row[0] for row in rows]


def _term(term: TermUse) -> dict[str, Any]:
    return {"source": term.source, "form": term.form or None, "forced": term.is_forced}


def _details(
    translator: "Translator", translations: Sequence[Translation], token_scores: bool, alignments: bool
) -> list[dict[str, Any]]:
    """The values of each translation that need another pass of the model over its tokens."""
    from t2t_keras.inference.explain import joined_word_alignment  # with TensorFlow, which takes seconds

    sources = [ids for translation in translations for ids in translation.source_ids]
    targets = [ids for translation in translations for ids in translation.token_ids]
    scores = iter(translator.score_tokens(sources, targets)) if token_scores else None
    aligned = iter(translator.align_tokens(sources, targets)) if alignments else None
    details = []
    for translation in translations:
        detail: dict[str, Any] = {"pieces": _pieces(translator.tokenizer, translation.token_ids)}
        if scores is not None:
            parts = [next(scores) for _ in translation.token_ids]
            detail["token_log_probs"] = [round(value, _DIGITS) for part in parts for value in part.token_log_probs]
        if aligned is not None:
            detail["source_pieces"] = _pieces(translator.tokenizer.source, translation.source_ids)
            detail["alignment"] = str(joined_word_alignment([next(aligned) for _ in translation.token_ids]))
        details.append(detail)
    return details


def _pieces(tokenizer: Tokenizer, parts: Sequence[Sequence[int]]) -> list[str]:
    return tokenizer.pieces([id for ids in parts for id in ids])

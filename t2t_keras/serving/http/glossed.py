"""Translation with a glossary: texts whose translation lacks a required term are translated again with constraints."""

import itertools
import pathlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from t2t_keras.export_contract import CONSTRAINED, TOKENS
from t2t_keras.serving.http import json_tensors
from t2t_keras.serving.http.fields import FieldCall, TwoRounds
from t2t_keras.serving.request_errors import invalid
from t2t_keras.serving.served_signatures import Arrays
from t2t_keras.serving.version_readers import VersionReaders

# A function of texts, entries of a glossary (pairs of a term and its forms), and the maximum number of rows per call.
# It raises an `InputError` that names an invalid entry.
ReadTexts = Callable[[Sequence[str], Sequence[tuple[str, str]], int], TwoRounds]


class GlossaryField:
    """The field "glossary": terms that the translations must contain. See `RequestField`.

    Args:
        reader: takes the directory of a version, and returns the function that applies glossaries to its texts; raises
            an `InputError` if the version does not support glossaries.
    """

    name, noun, requests = "glossary", "glossaries", "translations with a glossary"
    missing = "does not support glossaries"
    schema: Mapping[str, Any] = {
        "type": "array",
        "items": {
            "type": "array",
            "prefixItems": [{"type": "string"}, {"type": "string"}],
            "items": False,
            "minItems": 2,
        },
        "description": "terms, and their forms, separated by |; a translation must have one form",
        "examples": [[["dog", "Hund|Hunde"]]],
    }
    signatures = frozenset({TOKENS, CONSTRAINED})
    refinements: Mapping[str, Any] = {}
    automatic_for: frozenset[str] = frozenset()

    def __init__(self, reader: Callable[[pathlib.Path], ReadTexts]) -> None:
        self._glossaries = VersionReaders(reader)

    def begin(self, call: FieldCall) -> Coroutine[Any, Any, Arrays]:
        """Queues the calls without constraints. The outputs are those of `TwoRounds.answer`."""
        most_rows = call.options.limits.max_sentences
        pairs, texts = _pairs(call.value, most_rows), call.texts()
        # Limited, because every request encodes all forms of its glossary.
        num_bytes = sum(len(text.encode("utf-8", "replace")) for text in (*texts, *itertools.chain(*pairs)))
        call.check_bytes(num_bytes, f"texts and a glossary of {num_bytes} bytes")
        return call.translate(self._glossaries.of(call.model)(texts, pairs, most_rows))


def _pairs(glossary: Any, most: int) -> list[tuple[str, str]]:
    """Returns the entries of a glossary; raises a `ServingError` that names the first invalid entry."""
    if not isinstance(glossary, list):
        raise invalid(f"'glossary' must be a list of [term, forms], got {json_tensors.quoted(glossary)}")
    if len(glossary) > most:
        raise invalid(f"{len(glossary)} terms in a glossary: the limit is max_sentences={most}")
    for number, entry in enumerate(glossary, start=1):
        if not isinstance(entry, list) or [type(each) for each in entry] != [str, str]:
            text = json_tensors.quoted(entry)
            raise invalid(f"glossary, entry {number}: expected a term and its forms, two strings, got {text}")
    return [(term, forms) for term, forms in glossary]

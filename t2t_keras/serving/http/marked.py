"""Translation of documents with markup: their texts are extracted, translated and inserted again."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

import numpy as np

from t2t_keras.export_contract import ALIGN
from t2t_keras.serving.http import json_tensors
from t2t_keras.serving.http.fields import FieldCall
from t2t_keras.serving.http.protected import SCHEMAS, ProtectedTexts, Protections, protect
from t2t_keras.serving.parts import rows_of
from t2t_keras.serving.request_errors import invalid
from t2t_keras.serving.served_signatures import Arrays

_REFINEMENTS: Mapping[str, Any] = {
    "markup_attributes": {
        "type": "array",
        "items": {"type": "string"},
        "description": "with html or xml: attributes to translate",
        "examples": [["alt", "title", "placeholder", "aria-label"]],
    },
    "tag": {
        "type": "string",
        "description": "with markup: tag of the target language, for a model that translates in several directions",
        "examples": ["<2de>"],
    },
}


class Documents(Protocol):
    """Documents that were parsed and split into translatable texts."""

    @property
    def texts(self) -> Sequence[str]:
        """The texts to translate, in document order."""

    def filled(self, outputs: Sequence[Any]) -> list[str]:
        """Returns the documents with the texts replaced by translations.

        Args:
            outputs: for each text, the outputs of the signature `align`, arrays by name with one row, or its entry of
                `ProtectedTexts.aligned`.
        """


# A function that parses documents, given the kind of markup, the documents, and the names of attributes to translate.
# It raises an `InputError` if the kind is unknown or does not support attributes, or if a document is not valid.
ReadDocuments = Callable[[str, Sequence[str], Sequence[str]], Documents]


class MarkupField:
    """The field "markup": the texts are documents. See `RequestField`.

    Args:
        read: parses documents.
        protections: finds protected spans in the texts of the documents; None to protect none.
    """

    name, noun, requests, missing = "markup", "markup", "documents with markup", "does not translate markup"
    schema: Mapping[str, Any] = {
        "type": "string",
        "enum": ["html", "xml", "placeholders"],
        "description": "the texts and the answers are documents",
    }
    signatures = frozenset({ALIGN})
    automatic_for: frozenset[str] = frozenset()

    def __init__(self, read: ReadDocuments, protections: Protections | None = None) -> None:
        self._read, self._protections = read, protections
        self.refinements: Mapping[str, Any] = _REFINEMENTS if protections is None else {**_REFINEMENTS, **SCHEMAS}

    def begin(self, call: FieldCall) -> Coroutine[Any, Any, Arrays]:
        """Parses the documents and queues the calls on their texts. The output is "translation", one per document."""
        if not isinstance(call.value, str):
            raise invalid(f"'markup' must be a string, got {json_tensors.quoted(call.value)}")
        attributes = call.refinement("markup_attributes", [])
        if not isinstance(attributes, list) or not all(isinstance(name, str) for name in attributes):
            raise invalid(f"'markup_attributes' must be a list of strings, got {json_tensors.quoted(attributes)}")
        tag = _tag(call)
        raw = call.unchecked_inputs()["text"]
        if raw.ndim != 1 or not raw.size:
            raise invalid("'text' must be a list of documents")
        limit = call.options.limits.max_sentences
        if raw.size > limit:
            raise invalid(f"{raw.size} documents in a request: the limit is max_sentences={limit}")
        # Limited, because Python's parser takes quadratic time for some HTML.
        num_bytes = sum(map(len, raw))
        call.check_bytes(num_bytes, f"documents of {num_bytes} bytes in a request")
        documents = self._read(call.value, [text.decode("utf-8", "replace") for text in raw], attributes)
        texts = np.array([text.encode() for text in documents.texts], object)
        if len(texts) > limit:
            raise invalid(f"{len(texts)} sentences in the documents: the limit is max_sentences={limit}")
        protected = protect(call, self._protections, ALIGN, {"text": texts}, tag) if self._protections else None
        if protected:
            return _translate_protected(call, documents, protected, call.submit(protected.first))
        tagged_texts = (f"{tag} ".encode() if tag else b"") + texts
        groups = call.groups(list(map(len, tagged_texts)))
        calls = ((ALIGN, {"text": tagged_texts[group]}) for group in groups)
        return _translate(call, documents, groups, call.submit(calls))


def _tag(call: FieldCall) -> str:
    """Returns the value of "tag", which must be the tag of one of the model's target languages."""
    tag = call.refinement("tag", "")
    tags = [f"<2{target}>" for _, target in call.model.about.get("directions", [])]
    if tag != "" and tag not in tags:
        valid = f"one of {', '.join(dict.fromkeys(tags))}" if tags else "empty for a model of one direction"
        raise invalid(f"'tag' must be {valid}; got {json_tensors.quoted(tag)}")
    return tag


async def _translate(
    call: FieldCall, documents: Documents, groups: list[list[int]], futures: list[Future[Arrays]]
) -> Arrays:
    """Waits for the outputs of each group of texts, and returns the translated documents."""
    rows: list[Arrays] = [{}] * len(documents.texts)
    for group, outputs in zip(groups, await call.outputs(futures), strict=True):
        for row, number in enumerate(group):
            rows[number] = rows_of(outputs, row, row + 1)
    return _outputs(await asyncio.to_thread(documents.filled, rows))


async def _translate_protected(
    call: FieldCall, documents: Documents, texts: ProtectedTexts, futures: list[Future[Arrays]]
) -> Arrays:
    """Waits for the translations of texts with protected spans, and returns the translated documents."""
    outputs = await call.second_outputs(texts, futures)
    return _outputs(await asyncio.to_thread(lambda: documents.filled(texts.aligned(outputs))))


def _outputs(documents: Sequence[str]) -> Arrays:
    return {"translation": np.array([text.encode() for text in documents], object)}

"""Translation of texts with protected spans: they are removed from the texts, and put back into the translations."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from t2t_keras.export_contract import ALIGN
from t2t_keras.serving.http.fields import FieldCall
from t2t_keras.serving.request_errors import ServingError
from t2t_keras.serving.served_signatures import Arrays
from t2t_keras.serving.version_readers import VersionReaders

# The name of a signature and its inputs.
SignatureCall = tuple[str, Arrays]

# The fields of a request that change what is protected.
SCHEMAS: Mapping[str, Any] = {
    "protect": {
        "type": "array",
        "items": {"type": "string", "enum": ["urls", "emails", "numbers", "files"]},
        "description": "kinds of spans that translations repeat unchanged; not with a glossary",
    },
    "case": {
        "type": "string",
        "enum": ["exact", "fallback"],
        "description": "fallback: texts in capitals or in title case are translated by their ordinary form",
    },
}


class ProtectedTexts(Protocol):
    """Texts with protected spans, and the state of their translation.

    Call `first`, `again` and `answer` in this order. Calls name a signature of texts.
    """

    @property
    def first(self) -> Sequence[SignatureCall]:
        """The calls that translate the texts."""

    def again(self, outputs: Sequence[Arrays]) -> Sequence[SignatureCall]:
        """Returns the calls for texts whose translations do not repeat their spans; may be empty."""

    def answer(self, outputs: Sequence[Arrays]) -> Arrays:
        """Returns the outputs of the request, given those of the calls of `again`."""

    def aligned(self, outputs: Sequence[Arrays]) -> Sequence[Any]:
        """Returns the aligned translations, for `Documents.filled`, given the outputs of the calls of `again`."""


class Protection(Protocol):
    """Finds protected spans for one version of a model."""

    def __call__(
        self,
        texts: Sequence[str],
        fields: Mapping[str, Any],
        aligning: str,
        most_rows: int,
        *,
        aligns_all: bool = False,
    ) -> ProtectedTexts | None:
        """Prepares the texts of a request.

        Args:
            texts: the texts.
            fields: those of `SCHEMAS` that the request has.
            aligning: name of the signature that returns word alignments; "" if there is none.
            most_rows: maximum number of rows per call.
            aligns_all: whether all texts are aligned, for `ProtectedTexts.aligned`.

        Returns:
            The texts, or None if the model reads all of them as they are.

        Raises:
            InputError: a field is invalid, or the version does not support it.
        """


Protections = VersionReaders[Protection]


class ProtectionField:
    """The fields "protect" and "case": spans that translations repeat unchanged, and unusual case. See `RequestField`.

    Args:
        protections: finds protected spans.
    """

    name, noun, requests = "protect", "protected spans", "texts with protected spans"
    missing = "does not protect spans"
    schema: Mapping[str, Any] = SCHEMAS["protect"]
    signatures: frozenset[str] = frozenset()
    refinements: Mapping[str, Any] = {"case": SCHEMAS["case"]}
    is_automatic = True

    def __init__(self, protections: Protections) -> None:
        self._protections = protections

    def begin(self, call: FieldCall) -> Coroutine[Any, Any, Arrays] | None:
        """Queues the translation of the prepared texts. The outputs are those of `ProtectedTexts.answer`."""
        if texts := protect(call, call.texts(), self._protections):
            return _translate(call, texts, submit(call, texts.first))
        return None


def protect(
    call: FieldCall, texts: Sequence[str], protections: Protections, *, aligns_all: bool = False
) -> ProtectedTexts | None:
    """Prepares texts; returns None if the model reads all of them as they are.

    Args:
        call: the request.
        texts: the texts.
        protections: finds protected spans.
        aligns_all: see `Protection`.

    Raises:
        InputError: a field is invalid.
        ServingError: the request has a field that the version does not support any more.
    """
    fields = call.present(SCHEMAS)
    aligning = ALIGN if ALIGN in call.model.signatures else ""
    try:
        protection = protections.of(call.model)
    except ServingError:
        if fields:
            raise
        return None  # a version whose files are gone continues to translate
    return protection(texts, fields, aligning, call.options.limits.max_sentences, aligns_all=aligns_all)


def submit(call: FieldCall, calls: Sequence[SignatureCall]) -> list[Future[Arrays]]:
    """Queues calls of several signatures, either all or none."""
    return [future for name, inputs in calls for future in call.submit(name, [inputs])]


async def second_outputs(call: FieldCall, texts: ProtectedTexts, futures: list[Future[Arrays]]) -> list[Arrays]:
    """Waits for the first translations, and translates again the texts whose translations do not repeat their spans.

    Args:
        call: the request.
        texts: the texts.
        futures: the outputs of the calls of `ProtectedTexts.first`.

    Returns:
        The outputs of the calls of `ProtectedTexts.again`.
    """
    calls = await asyncio.to_thread(texts.again, await call.outputs(futures))
    return await call.outputs(submit(call, calls))


async def _translate(call: FieldCall, texts: ProtectedTexts, futures: list[Future[Arrays]]) -> Arrays:
    outputs = await second_outputs(call, texts, futures)
    return await asyncio.to_thread(texts.answer, outputs)

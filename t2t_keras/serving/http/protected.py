"""Translation of texts with protected spans: they are removed from the texts, and put back into the translations."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from t2t_keras.errors import InputError
from t2t_keras.export_contract import ALIGN, NBEST, SAMPLE, SERVING_DEFAULT
from t2t_keras.serving.http.fields import FieldCall, TwoRounds
from t2t_keras.serving.request_errors import ServingError
from t2t_keras.serving.served_signatures import Arrays
from t2t_keras.serving.version_readers import VersionReaders

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


class ProtectedTexts(TwoRounds, Protocol):
    """Texts with protected spans, and the state of their translation."""

    def aligned(self, outputs: Sequence[Arrays]) -> Sequence[Any]:
        """Returns the aligned translations, for `Documents.filled`, in place of `answer`."""


class Protection(Protocol):
    """Finds protected spans for one version of a model."""

    def __call__(
        self,
        inputs: Mapping[str, np.ndarray],
        fields: Mapping[str, Any],
        signature: str,
        aligns: bool,
        groups: Callable[[Sequence[int]], list[list[int]]],
        tag: str = "",
    ) -> ProtectedTexts | None:
        """Prepares the texts of a request.

        Args:
            inputs: the inputs of the signature, among them "text".
            fields: those of `SCHEMAS` that the request has.
            signature: name of the signature that translates; with `ALIGN`, all texts are aligned.
            aligns: whether the signature `ALIGN` exists, and returns scores.
            groups: groups texts of given sizes into calls; see `FieldCall.groups`.
            tag: symbol to put in front of each sentence, or "".

        Returns:
            The texts, or None if the model reads all of them as they are.

        Raises:
            InputError: a field is invalid, or the version does not support it.
        """


Protections = VersionReaders[Protection]


class ProtectionField:
    """The fields "protect" and "case", for spans that translations repeat unchanged, and for unusual case.

    See `RequestField`.

    Args:
        protections: finds protected spans.
    """

    name, noun, requests = "protect", "protected spans", "texts with protected spans"
    missing = "does not protect spans"
    schema: Mapping[str, Any] = SCHEMAS["protect"]
    signatures: frozenset[str] = frozenset()
    refinements: Mapping[str, Any] = {"case": SCHEMAS["case"]}
    automatic_for = frozenset({SERVING_DEFAULT, NBEST, SAMPLE})

    def __init__(self, protections: Protections) -> None:
        self._protections = protections

    def begin(self, call: FieldCall) -> Coroutine[Any, Any, Arrays] | None:
        """Queues the translation of the prepared texts. The outputs are those of `TwoRounds.answer`."""
        if texts := protect(call, self._protections, call.signature.name, call.inputs()):
            return call.translate(texts)
        return None


def protect(
    call: FieldCall, protections: Protections, signature: str, inputs: Arrays, tag: str = ""
) -> ProtectedTexts | None:
    """Prepares texts; returns None if the model reads all of them as they are.

    Args:
        call: the request.
        protections: finds protected spans.
        signature: name of the signature that translates; with `ALIGN`, all texts are aligned.
        inputs: the inputs of the signature, among them "text".
        tag: symbol to put in front of each sentence, or "".

    Raises:
        InputError: a field is invalid, or the request has a field, but the settings of the version are not valid.
        ServingError: the request has a field, but the files of the version are missing or have changed.
    """
    fields = call.present(SCHEMAS)
    try:
        protection = protections.of(call.model)
    except (InputError, ServingError):
        if fields:
            raise
        return None  # a version whose files were deleted, or have settings of another release, still translates
    align = call.model.signatures.get(ALIGN)
    aligns = align is not None and "score" in align.outputs
    return protection(inputs, fields, signature, aligns, call.groups, tag)

"""Translation of texts with protected spans: they are removed from the texts, and put back into the translations."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from t2t_keras.errors import InputError
from t2t_keras.serving.core import Core, Loan
from t2t_keras.serving.request_errors import Code, ServingError, invalid
from t2t_keras.serving.rounds import Rounds, SignatureCall
from t2t_keras.serving.served_models import DEFAULT_SIGNATURE
from t2t_keras.serving.served_signatures import Arrays, Signature
from t2t_keras.serving.version_readers import VersionReaders

# The signature that returns translations with word alignments.
_ALIGN = "align"
# The fields of a request that change what is protected.
FIELDS = ("protect", "case")


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
            fields: those of `FIELDS` that the request has.
            aligning: name of the signature that returns word alignments; "" if there is none.
            most_rows: maximum number of rows per call.
            aligns_all: whether all texts are aligned, for `ProtectedTexts.aligned`.

        Returns:
            The texts, or None if the model reads all of them as they are.

        Raises:
            InputError: a field is invalid, or the version does not support it.
        """


Protections = VersionReaders[Protection]


def protected_call(
    core: Core,
    loan: Loan,
    signature: Signature,
    inputs: Arrays,
    protections: Protections | None,
    fields: Mapping[str, Any],
    client_seconds: float | None = None,
) -> Rounds | None:
    """Queues the calls of a request if one of its texts must not be read as it is.

    Args:
        core: runs the calls.
        loan: the model, within the block of `Core.lend`.
        signature: the signature of the request.
        inputs: its inputs.
        protections: finds protected spans; None if they are not supported.
        fields: the parsed body or, if there is none, nothing.
        client_seconds: deadline of the client in seconds from now, if it has one.

    Raises:
        ServingError: a field is invalid or not supported, or a call cannot be queued.
    """
    given = {name: fields[name] for name in FIELDS if name in fields}
    is_default = signature.name == DEFAULT_SIGNATURE and list(signature.inputs) == ["text"]
    if given and (protections is None or not is_default):
        raise ServingError(Code.UNIMPLEMENTED, f"{next(iter(given))!r} is supported only for {DEFAULT_SIGNATURE!r}")
    if protections is None or not is_default or "text" not in inputs:
        return None
    signature.check(inputs, core.options.limits)
    texts = [text.decode("utf-8", "replace") for text in inputs["text"].tolist()]
    prepared = protected_texts(core, loan, texts, protections, given)
    if prepared is None:
        return None
    return Rounds(core, loan, prepared.first, prepared.again, prepared.answer, client_seconds)


def protected_texts(
    core: Core,
    loan: Loan,
    texts: Sequence[str],
    protections: Protections,
    fields: Mapping[str, Any],
    *,
    aligns_all: bool = False,
) -> ProtectedTexts | None:
    """Prepares texts; returns None if the model reads all of them as they are.

    Args:
        core: runs the calls.
        loan: the model.
        texts: the texts.
        protections: finds protected spans.
        fields: those of `FIELDS` that the request has.
        aligns_all: see `Protection`.

    Raises:
        ServingError: a field is invalid or not supported.
    """
    aligning = _ALIGN if _ALIGN in loan.model.signatures else ""
    try:
        protection = protections.of(loan.model)
        return protection(texts, fields, aligning, core.options.limits.max_sentences, aligns_all=aligns_all)
    except InputError as error:
        raise invalid(str(error)) from error
    except ServingError:
        if fields:
            raise
        return None  # a version whose files are gone continues to translate

"""Translation with a glossary: texts whose translation lacks a required term are translated again with constraints."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from t2t_keras.errors import InputError
from t2t_keras.serving.core import Core, Loan
from t2t_keras.serving.http import json_tensors
from t2t_keras.serving.request_errors import Code, ServingError, invalid
from t2t_keras.serving.rounds import Rounds, SignatureCall
from t2t_keras.serving.served_models import DEFAULT_SIGNATURE
from t2t_keras.serving.served_signatures import Arrays
from t2t_keras.serving.version_readers import VersionReaders

# The signatures that translate token ids: without constraints, and with phrases that the output must contain.
_PLAIN, _CONSTRAINED = "tokens", "constrained"


class Texts(Protocol):
    """Texts with a glossary, and the state of their translation.

    Call `first`, `again` and `answer` in this order.
    """

    @property
    def first(self) -> Sequence[Arrays]:
        """The inputs of the calls of signature `tokens`, which translate without constraints."""

    def again(self, outputs: Sequence[Arrays]) -> Sequence[Arrays]:
        """Returns the inputs of the calls of signature `constrained`; may be empty.

        Args:
            outputs: outputs of the calls of `first`.
        """

    def answer(self, outputs: Sequence[Arrays]) -> Arrays:
        """Returns the outputs of the request.

        Args:
            outputs: outputs of the calls of `again`.
        """


# A function of texts, glossary entries (pairs of a term and its forms) and the maximum number of rows per call. It
# raises an `InputError` that names an invalid entry.
ReadTexts = Callable[[Sequence[str], Sequence[tuple[str, str]], int], Texts]


Glossaries = VersionReaders[ReadTexts]


class GlossedCall:
    """A queued translation with a glossary; `outputs` waits for the result.

    Args:
        core: runs the calls on token ids.
        loan: the model, within the block of `Core.lend`.
        content: the parsed body.
        glossaries: applies glossaries; None if they are not supported.

    Raises:
        ServingError: the glossary or a text is invalid or exceeds a limit, or the model does not support glossaries.
    """

    def __init__(self, core: Core, loan: Loan, content: dict[str, Any], glossaries: Glossaries | None) -> None:
        if content.get("signature_name", DEFAULT_SIGNATURE) not in ("", DEFAULT_SIGNATURE):
            raise invalid(f"only {DEFAULT_SIGNATURE!r} supports glossaries; omit 'signature_name'")
        if "markup" in content:
            raise invalid("a glossary cannot be combined with markup")
        default, options = loan.model.signature(DEFAULT_SIGNATURE), core.options
        has_signatures = {_PLAIN, _CONSTRAINED} <= loan.model.signatures.keys()
        if glossaries is None or not has_signatures or list(default.inputs) != ["text"]:
            raise ServingError(Code.UNIMPLEMENTED, f"version {loan.model.version} has no translation with a glossary")
        pairs = _pairs(content["glossary"], options.limits.max_sentences)
        inputs = json_tensors.read_inputs(content, default)
        default.check(inputs, options.limits)
        texts = [text.decode("utf-8", "replace") for text in inputs["text"]]
        # Limited, because every request encodes all forms again.
        num_bytes = sum(len(text.encode("utf-8", "replace")) for text in (*texts, *itertools.chain(*pairs)))
        if num_bytes > (most := options.max_batch_bytes):
            raise invalid(f"texts and a glossary of {num_bytes} bytes: the limit is max_batch_bytes={most}")
        try:
            self._texts = glossaries.of(loan.model)(texts, pairs, options.limits.max_sentences)
        except InputError as error:
            raise invalid(str(error)) from error
        first = [(_PLAIN, inputs) for inputs in self._texts.first]
        self._rounds = Rounds(core, loan, first, self._again, self._texts.answer)

    def _again(self, outputs: Sequence[Arrays]) -> list[SignatureCall]:
        return [(_CONSTRAINED, inputs) for inputs in self._texts.again(outputs)]

    async def outputs(self) -> Arrays:
        """Waits for the translations, their scores and the terms that they lack. Cancelling the wait stops all calls.

        Raises:
            ServingError: a call failed.
        """
        return await self._rounds.outputs()


def _pairs(glossary: Any, most: int) -> list[tuple[str, str]]:
    """Returns the entries of a glossary; raises a `ServingError` that names the first invalid entry."""
    if not isinstance(glossary, list):
        raise invalid(f"'glossary' must be a list of [term, forms], got {json_tensors.shown(glossary)}")
    if len(glossary) > most:
        raise invalid(f"{len(glossary)} terms in a glossary: the limit is max_sentences={most}")
    for number, entry in enumerate(glossary, start=1):
        if not isinstance(entry, list) or [type(each) for each in entry] != [str, str]:
            text = json_tensors.shown(entry)
            raise invalid(f"glossary, entry {number}: expected a term and its forms, two strings, got {text}")
    return [(term, forms) for term, forms in glossary]

"""Translation of documents with markup, which are split into sentences, translated and reassembled."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from t2t_keras.errors import InputError
from t2t_keras.serving.core import Core, Loan
from t2t_keras.serving.http import json_tensors
from t2t_keras.serving.parts import rows_of
from t2t_keras.serving.protected import FIELDS, Protections, protected_texts
from t2t_keras.serving.request_errors import Code, ServingError, invalid
from t2t_keras.serving.rounds import Rounds
from t2t_keras.serving.served_models import DEFAULT_SIGNATURE
from t2t_keras.serving.served_signatures import ROW_COST, Arrays

# The signature that returns translations with word alignments.
_ALIGN = "align"
# Maximum number of sentences in a call of this signature, enough for an efficient batch.
_MOST_SENTENCES = 8


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


# A function of a kind of markup, documents and names of attributes to translate, which parses the documents. It raises
# an `InputError` if the kind is unknown or has no attributes, or a document is not valid markup of this kind.
ReadDocuments = Callable[[str, Sequence[str], Sequence[str]], Documents]


class MarkedCall:
    """A queued translation of documents; `outputs` waits for the result.

    Args:
        core: runs the calls on the sentences.
        loan: the model, within the block of `Core.lend`.
        content: the parsed body.
        read: parses documents; None if markup is not supported.
        protections: protects spans of the texts; None if this is not supported.

    Raises:
        ServingError: the documents cannot be parsed or exceed a limit, or the model does not support markup.
    """

    def __init__(
        self,
        core: Core,
        loan: Loan,
        content: dict[str, Any],
        read: ReadDocuments | None,
        protections: Protections | None = None,
    ) -> None:
        self._core = core
        if content.get("signature_name", DEFAULT_SIGNATURE) not in ("", DEFAULT_SIGNATURE):
            raise invalid(f"only {DEFAULT_SIGNATURE!r} supports markup; omit 'signature_name'")
        if not isinstance(markup := content["markup"], str):
            raise invalid(f"'markup' must be a string, got {json_tensors.shown(markup)}")
        attributes = content.get("markup_attributes", [])
        if not isinstance(attributes, list) or not all(isinstance(name, str) for name in attributes):
            raise invalid(f"'markup_attributes' must be a list of strings, got {json_tensors.shown(attributes)}")
        default = loan.model.signature(DEFAULT_SIGNATURE)
        if read is None or _ALIGN not in loan.model.signatures or list(default.inputs) != ["text"]:
            raise ServingError(Code.UNIMPLEMENTED, f"version {loan.model.version} does not translate markup")
        raw = json_tensors.read_inputs(content, default)["text"]
        if raw.ndim != 1 or not raw.size:
            raise invalid("'text' must be a list of documents")
        limit = core.options.limits.max_sentences
        if raw.size > limit:
            raise invalid(f"{raw.size} documents in a request: the limit is max_sentences={limit}")
        # Limited, because Python's parser takes quadratic time for some HTML.
        most_bytes = core.options.max_batch_bytes
        if (num_bytes := sum(map(len, raw))) > most_bytes:
            raise invalid(f"documents of {num_bytes} bytes in a request: the limit is max_batch_bytes={most_bytes}")
        try:
            self._documents = read(markup, [text.decode("utf-8", "replace") for text in raw], attributes)
        except InputError as error:
            raise invalid(str(error)) from error
        texts = [text.encode() for text in self._documents.texts]
        if len(texts) > limit:
            raise invalid(f"{len(texts)} sentences in the documents: the limit is max_sentences={limit}")
        self._rounds: Rounds | None = None
        fields = {name: content[name] for name in FIELDS if name in content}
        if fields and protections is None:
            raise ServingError(Code.UNIMPLEMENTED, f"{next(iter(fields))!r} is not supported")
        protected = protections and protected_texts(
            core, loan, self._documents.texts, protections, fields, aligns_all=True
        )
        if protected:
            read_texts = protected

            def answer(outputs: Sequence[Arrays]) -> Arrays:
                return _answer(self._documents.filled(read_texts.aligned(outputs)))

            self._rounds = Rounds(core, loan, protected.first, protected.again, answer)
            return
        self._groups = _groups(texts, core.options.max_batch_bytes)
        calls = ({"text": np.array([texts[number] for number in group], object)} for group in self._groups)
        self._futures = core.submit_all(loan, loan.model.signature(_ALIGN), calls)

    async def outputs(self) -> Arrays:
        """Waits for the translated documents. Cancelling the wait stops all calls.

        Returns:
            The output "translation", one string per document.

        Raises:
            ServingError: a call failed.
        """
        if self._rounds:
            return await self._rounds.outputs()
        try:
            results = await asyncio.gather(*(self._core.outputs(future) for future in self._futures))
        finally:
            for future in self._futures:
                future.cancel()
        rows: list[Arrays] = [{}] * len(self._documents.texts)
        for group, outputs in zip(self._groups, results, strict=True):
            for row, number in enumerate(group):
                rows[number] = rows_of(outputs, row, row + 1)
        documents = await asyncio.to_thread(self._documents.filled, rows)
        return _answer(documents)


def _answer(documents: Sequence[str]) -> Arrays:
    return {"translation": np.array([text.encode() for text in documents], object)}


def _groups(texts: Sequence[bytes], most_bytes: int) -> list[list[int]]:
    """Groups the indices of texts of similar length, because the texts of a call are padded to the longest one."""
    groups: list[list[int]] = []
    for number in sorted(range(len(texts)), key=lambda number: len(texts[number])):
        cost = len(texts[number]) + ROW_COST
        if not groups or len(groups[-1]) == _MOST_SENTENCES or (len(groups[-1]) + 1) * cost > most_bytes:
            groups.append([])
        groups[-1].append(number)
    return groups

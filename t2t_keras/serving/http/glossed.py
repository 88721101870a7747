"""Translation with a glossary: texts whose translation lacks a required term are translated again with constraints."""

import asyncio
import itertools
import pathlib
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from t2t_keras.errors import InputError
from t2t_keras.serving.core import Core, Loan
from t2t_keras.serving.http import json_tensors
from t2t_keras.serving.request_errors import Code, ServingError, invalid
from t2t_keras.serving.served_models import DEFAULT_SIGNATURE, Model
from t2t_keras.serving.served_signatures import Arrays

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


class Glossaries:
    """Thread-safe cache of the functions that apply glossaries, one per model version.

    Args:
        reader: creates such a function from the directory of a version; raises an `InputError` if the version does not
            support glossaries.
    """

    def __init__(self, reader: Callable[[pathlib.Path], ReadTexts]) -> None:
        self._reader = reader
        self._lock = threading.Lock()
        self._readers: weakref.WeakKeyDictionary[Model, ReadTexts] = weakref.WeakKeyDictionary()

    def of(self, model: Model) -> ReadTexts:
        """Returns the function for a version, and creates it from the version's files at the first call.

        Raises:
            InputError: the version does not support glossaries.
            ServingError: the files were deleted or replaced since the version was loaded.
        """
        with self._lock:
            if model not in self._readers:
                if not model.is_as_loaded:
                    raise ServingError(
                        Code.UNAVAILABLE, f"the files of version {model.version} are missing or have changed"
                    )
                self._readers[model] = self._reader(model.path)
            return self._readers[model]


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
        self._core, self._loan = core, loan
        self._end = time.monotonic() + core.options.request_seconds
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
        self._futures = self._queue_calls(_PLAIN, self._texts.first)
        # The model must stay loaded for the second round of calls.
        loan.versions.keep(loan.model)

    async def outputs(self) -> Arrays:
        """Waits for the translations, their scores and the terms that they lack. Cancelling the wait stops all calls.

        Raises:
            ServingError: a call failed.
        """
        try:
            calls = await asyncio.to_thread(self._texts.again, await self._answers())
            self._futures = self._queue_calls(_CONSTRAINED, calls)
            return await asyncio.to_thread(self._texts.answer, await self._answers())
        finally:
            for future in self._futures:
                future.cancel()
            self._loan.versions.release(self._loan.model)

    def _queue_calls(self, name: str, calls: Sequence[Arrays]) -> list[Future[Arrays]]:
        """Queues calls of a signature, either all or none."""
        seconds = self._end - time.monotonic()
        return self._core.submit_all(self._loan, self._loan.model.signature(name), calls, seconds)

    async def _answers(self) -> list[Arrays]:
        """Waits for the outputs of the calls that were queued last."""
        seconds = self._end - time.monotonic()
        return await asyncio.gather(*(self._core.outputs(future, seconds) for future in self._futures))


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

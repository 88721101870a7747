"""Requests with a glossary: what the model writes without a term is asked for again, with the term required."""

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
from t2t_keras.serving.core import Core, Lent
from t2t_keras.serving.http import json_tensors
from t2t_keras.serving.request_errors import Code, ServingError, invalid
from t2t_keras.serving.served_models import DEFAULT_SIGNATURE, Model
from t2t_keras.serving.served_signatures import Arrays

# The signatures that translate token ids: as they come, and with phrases of which an output must have some.
_PLAIN, _CONSTRAINED = "tokens", "constrained"


class Texts(Protocol):
    """Texts with a glossary, and what became of them so far."""

    @property
    def first(self) -> Sequence[Arrays]:
        """Inputs of calls of the signature `tokens`."""

    def again(self, outputs: Sequence[Arrays]) -> Sequence[Arrays]:
        """Inputs of calls of `constrained`, perhaps none, given the outputs of `first`."""

    def answer(self, outputs: Sequence[Arrays]) -> Arrays:
        """The outputs of the request, given those of `again`."""


# Takes texts, pairs of a term and its forms, and the most rows of a call; an `InputError` names the entry at fault.
ReadTexts = Callable[[Sequence[str], Sequence[tuple[str, str]], int], Texts]


class Glossaries:
    """What reads glossaries, for each version; for any thread.

    Args:
        reader: makes it for the directory of a version; an `InputError` if that does not go with glossaries.
    """

    def __init__(self, reader: Callable[[pathlib.Path], ReadTexts]) -> None:
        self._reader = reader
        self._lock = threading.Lock()
        self._made: weakref.WeakKeyDictionary[Model, ReadTexts] = weakref.WeakKeyDictionary()

    def of(self, model: Model) -> ReadTexts:
        """That of a version; an `InputError` if it does not go with glossaries.

        A `ServingError` says that its files, which are read at the first glossary, are no longer what was loaded.
        """
        with self._lock:
            if model not in self._made:
                if not model.is_as_loaded:
                    raise ServingError(Code.UNAVAILABLE, f"the files of version {model.version} are gone, or others")
                self._made[model] = self._reader(model.path)
            return self._made[model]


class GlossedCall:
    """A call for texts with a glossary, queued; see `outputs`.

    Args:
        core: answers the calls for token ids.
        lent: the model, within the block of `Core.lend`.
        content: the parsed body.
        glossaries: reads glossaries; None if nobody does.

    Raises:
        ServingError: the glossary or a text cannot be used or is above a limit, or the model has no such signatures.
    """

    def __init__(self, core: Core, lent: Lent, content: dict[str, Any], glossaries: Glossaries | None) -> None:
        self._core, self._lent = core, lent
        self._end = time.monotonic() + core.options.request_seconds
        if content.get("signature_name", DEFAULT_SIGNATURE) not in ("", DEFAULT_SIGNATURE):
            raise invalid(f"only {DEFAULT_SIGNATURE!r} has glossaries, leave out 'signature_name'")
        if "markup" in content:
            raise invalid("a glossary does not go together with markup")
        default, options = lent.model.signature(DEFAULT_SIGNATURE), core.options
        has_signatures = {_PLAIN, _CONSTRAINED} <= lent.model.signatures.keys()
        if glossaries is None or not has_signatures or list(default.inputs) != ["text"]:
            raise ServingError(Code.UNIMPLEMENTED, f"version {lent.model.version} has no translation with a glossary")
        pairs = _pairs(content["glossary"], options.limits.max_sentences)
        inputs = json_tensors.read_inputs(content, default)
        default.check(inputs, options.limits)
        texts = [text.decode("utf-8", "replace") for text in inputs["text"]]
        # Each form is encoded anew at each request.
        num_bytes = sum(len(text.encode("utf-8", "replace")) for text in (*texts, *itertools.chain(*pairs)))
        if num_bytes > (most := options.max_batch_bytes):
            raise invalid(f"texts and a glossary of {num_bytes} bytes: the limit is max_batch_bytes={most}")
        try:
            self._texts = glossaries.of(lent.model)(texts, pairs, options.limits.max_sentences)
        except InputError as error:
            raise invalid(str(error)) from error
        self._futures = self._asked(_PLAIN, self._texts.first)
        # Until the end, since more is asked of it.
        lent.versions.keep(lent.model)

    async def outputs(self) -> Arrays:
        """Waits for the translations, with scores and what terms they lack; cancelling the wait stops all.

        Raises:
            ServingError: a part of a text is not answered.
        """
        try:
            calls = await asyncio.to_thread(self._texts.again, await self._answers())
            self._futures = self._asked(_CONSTRAINED, calls)
            return await asyncio.to_thread(self._texts.answer, await self._answers())
        finally:
            for future in self._futures:
                future.cancel()
            self._lent.versions.release(self._lent.model)

    def _asked(self, name: str, calls: Sequence[Arrays]) -> list[Future[Arrays]]:
        """Queues calls of a signature, all or none."""
        seconds = self._end - time.monotonic()
        return self._core.submit_all(self._lent, self._lent.model.signature(name), calls, seconds)

    async def _answers(self) -> list[Arrays]:
        """The outputs of what was asked last."""
        seconds = self._end - time.monotonic()
        return await asyncio.gather(*(self._core.outputs(future, seconds) for future in self._futures))


def _pairs(glossary: Any, most: int) -> list[tuple[str, str]]:
    """The entries of a glossary; a `ServingError` names the one that is none."""
    if not isinstance(glossary, list):
        raise invalid(f"'glossary' must be a list of [term, forms], got {json_tensors.shown(glossary)}")
    if len(glossary) > most:
        raise invalid(f"{len(glossary)} terms in a glossary: the limit is max_sentences={most}")
    for number, entry in enumerate(glossary, start=1):
        if not isinstance(entry, list) or [type(each) for each in entry] != [str, str]:
            what = json_tensors.shown(entry)
            raise invalid(f"glossary, entry {number}: expected a term and its forms, two strings, got {what}")
    return [(term, forms) for term, forms in glossary]

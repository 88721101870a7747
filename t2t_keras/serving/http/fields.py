"""Optional fields of a REST request, such as "markup", each defined by one object."""

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from t2t_keras.errors import InputError
from t2t_keras.export_contract import SERVING_DEFAULT, SIGNATURES, SignatureContract
from t2t_keras.serving.core import Core, Loan
from t2t_keras.serving.http import json_tensors
from t2t_keras.serving.metrics import Call
from t2t_keras.serving.request_errors import Code, ServingError, invalid
from t2t_keras.serving.served_signatures import ROW_COST, Arrays, Signature
from t2t_keras.serving.translation_stream import TranslationStream

# The name of a signature and its inputs.
SignatureCall = tuple[str, Arrays]

_NOTHING = SignatureContract({}, {})
_MAX_ROWS = 8  # of a call of a field; enough for an efficient batch


class TwoRounds(Protocol):
    """The texts of a request, which two rounds of calls translate: use `first`, `again` and `answer` in this order."""

    @property
    def first(self) -> Sequence[SignatureCall]:
        """The calls of the first round."""

    def again(self, outputs: Sequence[Arrays]) -> Sequence[SignatureCall]:
        """Returns the calls of the second round, given the outputs of the first one; may be empty."""

    def answer(self, outputs: Sequence[Arrays]) -> Arrays:
        """Returns the outputs of the request, given those of the second round."""


class FieldCall:
    """A request with an optional field: its content, its limits, and the calls that it queues.

    Create it within the block of `Core.lend`. The model stays loaded until `close`.

    Args:
        core: runs the calls.
        loan: the model.
        content: the parsed body; empty over gRPC.
        name: name of the field.
        read: the signature and the inputs of the request, if the caller has read them.
        client_seconds: deadline of the client in seconds from now, if it has one.

    Attributes:
        value: the JSON value of the field; None if the request does not have it.
        model: the model.
        signature: the signature of the request.
        options: the settings of the server, with its limits.
    """

    def __init__(
        self,
        core: Core,
        loan: Loan,
        content: Mapping[str, Any],
        name: str,
        read: tuple[Signature, Arrays] | None = None,
        client_seconds: float | None = None,
    ) -> None:
        self.value, self.model, self.options = content.get(name), loan.model, core.options
        self._core, self._loan, self._content = core, loan, content
        self._inputs: Arrays | None
        self.signature, self._inputs = read or (loan.model.signature(SERVING_DEFAULT), None)
        limit = core.options.request_seconds
        self._end = time.monotonic() + (limit if client_seconds is None else min(limit, client_seconds))
        self._futures: list[Future[Arrays]] = []
        self._ends = contextlib.ExitStack()
        loan.versions.keep(loan.model)
        self._ends.callback(loan.versions.release, loan.model)

    def refinement(self, name: str, default: Any) -> Any:
        """Returns the JSON value of one of the field's `refinements`."""
        return self._content.get(name, default)

    def present(self, names: Iterable[str]) -> dict[str, Any]:
        """Returns the JSON values of those fields that the request has."""
        return {name: self._content[name] for name in names if name in self._content}

    def unchecked_inputs(self) -> Arrays:
        """Returns the inputs of the signature; only their types are checked.

        Raises:
            ServingError: an input is missing or of the wrong type.
        """
        if self._inputs is None:
            self._inputs = json_tensors.read_inputs(dict(self._content), self.signature)
        return self._inputs

    def inputs(self) -> Arrays:
        """Returns the inputs of the signature, checked as for a request without the field.

        Raises:
            ServingError: an input is missing, of the wrong type, or exceeds a limit.
        """
        self.signature.check(self.unchecked_inputs(), self.options.limits)
        return self.unchecked_inputs()

    def texts(self) -> list[str]:
        """Returns the values of the input "text", checked as in `inputs`."""
        return [text.decode("utf-8", "replace") for text in self.inputs()["text"]]

    def check_bytes(self, num_bytes: int, description: str) -> None:
        """Raises a `ServingError` if the request exceeds the size limit of a batch.

        Args:
            num_bytes: size of the texts and the field.
            description: the contents and their size, for the message.
        """
        if num_bytes > (most := self.options.max_batch_bytes):
            raise invalid(f"{description}: the limit is max_batch_bytes={most}")

    def groups(self, sizes: Sequence[int]) -> list[list[int]]:
        """Groups texts of similar length into calls, because all texts of a call are padded to the longest one.

        Args:
            sizes: the sizes of the texts in bytes.

        Returns:
            The indices of the texts of each call.
        """
        most_rows, most_bytes = min(_MAX_ROWS, self.options.limits.max_sentences), self.options.max_batch_bytes
        groups: list[list[int]] = []
        for number in sorted(range(len(sizes)), key=sizes.__getitem__):
            cost = sizes[number] + ROW_COST
            if not groups or len(groups[-1]) == most_rows or (len(groups[-1]) + 1) * cost > most_bytes:
                groups.append([])
            groups[-1].append(number)
        return groups

    def submit(self, calls: Iterable[SignatureCall]) -> list[Future[Arrays]]:
        """Queues calls, either all or none; see `Core.submit`. The queue always admits the second round of calls."""
        is_first = not self._futures
        futures = self._core.submit_all(self._loan, calls, self._end - time.monotonic(), is_first)
        self._futures += futures
        return futures

    async def second_outputs(self, texts: TwoRounds, futures: Sequence[Future[Arrays]]) -> list[Arrays]:
        """Returns the outputs of the second round of calls; `futures` are those of the first round."""
        calls = await asyncio.to_thread(texts.again, await self.outputs(futures))
        return await self.outputs(self.submit(calls))

    def translate(self, texts: TwoRounds) -> Coroutine[Any, Any, Arrays]:
        """Queues the first round of calls, and returns a coroutine for the outputs of the request."""
        return self._answer(texts, self.submit(texts.first))

    async def _answer(self, texts: TwoRounds, futures: Sequence[Future[Arrays]]) -> Arrays:
        outputs = await self.second_outputs(texts, futures)
        return await asyncio.to_thread(texts.answer, outputs)

    async def outputs(self, futures: Sequence[Future[Arrays]]) -> list[Arrays]:
        """Waits for the outputs of queued calls, at most until the time limit of the request."""
        seconds = self._end - time.monotonic()
        return await asyncio.gather(*(self._core.outputs(future, seconds) for future in futures))

    def close(self) -> None:
        """Cancels all unfinished calls and releases the model."""
        for future in self._futures:
            future.cancel()
        self._ends.close()


class RequestField(Protocol):
    """An optional field in the body of `:predict`, which changes how the texts are processed.

    The server checks that the model has the signatures, that the request uses the default signature with the input
    "text", and that no two fields are combined. The field is not available for `:stream`. An `InputError` of `begin` or
    of its coroutine is reported as an invalid request.

    An automatic field also processes requests without it, over REST and gRPC, if they use one of its signatures and the
    inputs are those of an export. It is available for `:stream`, and requests may have its refinements without it. A
    different field can be combined with it by listing it among its refinements.

    Attributes:
        name: name of the field, and the label of its requests in metrics.
        noun: noun for messages, such as "markup".
        requests: noun for requests with the field, such as "documents with markup".
        missing: verb phrase about a model without the signatures, such as "does not translate markup".
        schema: OpenAPI schema of the value, with a description.
        signatures: names of the signatures that a model needs for the field.
        refinements: OpenAPI schemas of further fields, which are allowed only together with this one.
        automatic_for: names of the signatures of which the field also processes requests without it; empty unless the
            field is automatic.
    """

    name: str
    noun: str
    requests: str
    missing: str
    schema: Mapping[str, Any]
    signatures: frozenset[str]
    refinements: Mapping[str, Any]
    automatic_for: frozenset[str]

    def begin(self, call: FieldCall) -> Coroutine[Any, Any, Arrays] | None:
        """Checks a request and queues its first calls.

        Runs in a thread. The coroutine waits for the outputs, and runs in the event loop.

        Args:
            call: the request; the server closes it.

        Returns:
            Coroutine that returns the outputs, arrays by name with one row per text. None if the field is automatic and
            has no effect on these texts.

        Raises:
            InputError: the value of the field or a text is invalid.
            ServingError: the request exceeds a limit.
        """


@dataclasses.dataclass(frozen=True)
class QueuedCall:
    """A request whose first calls are queued. Either `result` or `give_up` must be called.

    Attributes:
        outputs: waits for the outputs.
        cancel: cancels all unfinished calls and releases the model.
    """

    outputs: Coroutine[Any, Any, Arrays]
    cancel: Callable[[], object]

    async def result(self) -> Arrays:
        """Waits for the outputs. Cancelling the wait cancels the calls.

        Raises:
            ServingError: a call failed or timed out, or the request turned out to be invalid.
        """
        try:
            return await self.outputs
        except InputError as error:
            raise invalid(str(error)) from error
        finally:
            self.cancel()

    def give_up(self) -> None:
        """Cancels a request whose client has disconnected."""
        self.outputs.close()
        self.cancel()


class OneTurn:
    """A stream whose only turn is the complete answer. Must be closed.

    Args:
        queued: the request.
    """

    def __init__(self, queued: QueuedCall) -> None:
        self._queued = queued

    async def turn(self) -> tuple[Arrays, bool]:
        """Waits for the outputs, which are final; see `TranslationStream.turn`."""
        return await self._queued.result(), True

    def close(self) -> None:
        """Cancels the request if it is unfinished; repeated calls are harmless."""
        self._queued.give_up()


class Calls:
    """Queues the calls of requests, with or without an optional field.

    Args:
        core: runs the calls.
        fields: the optional fields that the server supports.
    """

    def __init__(self, core: Core, fields: Sequence[RequestField]) -> None:
        self._core, self.fields = core, tuple(fields)
        self._automatic = {
            name: field for field in fields if field.automatic_for for name in (field.name, *field.refinements)
        }
        # JSON escapes (\u) may also spell the names.
        names = [name for field in fields for name in (field.name, *field.refinements)]
        self._names = {"instances", "inputs", "signature_name", *names}
        self._marks = (*(f'"{name}"'.encode() for name in names), *([b"\\u"] if fields else []))

    def may_have_field(self, body: bytes) -> bool:
        """Returns whether a body may have an optional field: a fast check, which can return True for other bodies."""
        return any(mark in body for mark in self._marks)

    def begin(self, call: Call, loan: Loan, content: dict[str, Any]) -> QueuedCall:
        """Queues the first calls of a request. Must be called within the block of `Core.lend`.

        Args:
            call: the request in the metrics.
            loan: the model.
            content: the parsed body.

        Raises:
            ServingError: the request is invalid or exceeds a limit, or the model does not support it.
        """
        if field := self._field_of(content):
            call.signature = field.name
            return self._begin_field(field, loan, content)
        signature = loan.model.signature(content.get("signature_name", ""))
        call.signature = signature.name
        return self.begin_signature(loan, signature, json_tensors.read_inputs(content, signature), content=content)

    def begin_signature(
        self,
        loan: Loan,
        signature: Signature,
        inputs: Arrays,
        client_seconds: float | None = None,
        content: Mapping[str, Any] = MappingProxyType({}),
    ) -> QueuedCall:
        """Queues the calls for the inputs of a signature, with the automatic fields; see `begin`.

        Args:
            loan: the model.
            signature: one of the model's signatures.
            inputs: arrays by name.
            client_seconds: deadline of the client in seconds from now, if it has one.
            content: the parsed body, if there is one.
        """
        if queued := self._begin_automatic(loan, signature, inputs, client_seconds, content):
            return queued
        future = self._core.submit(loan, signature, inputs, client_seconds)
        return QueuedCall(self._core.outputs(future), future.cancel)

    def begin_stream(self, call: Call, loan: Loan, content: dict[str, Any]) -> TranslationStream | OneTurn:
        """Queues the first turn of a streaming request; see `begin` and `Core.begin_stream`."""
        if content.get("signature_name", SERVING_DEFAULT) not in ("", SERVING_DEFAULT):
            raise invalid(f"only answers of {SERVING_DEFAULT!r} can be streamed; omit 'signature_name'")
        call.signature = "stream"
        if field := self._field_of(content):
            raise invalid(f"{field.requests} cannot be streamed; use predict")
        signature = loan.model.signature(SERVING_DEFAULT)
        inputs = json_tensors.read_inputs(content, signature)
        # More than one text is refused below.
        if np.size(inputs.get("text", ())) == 1 and (
            queued := self._begin_automatic(loan, signature, inputs, None, content)
        ):
            return OneTurn(queued)
        return self._core.begin_stream(loan, inputs)

    def _field_of(self, content: Mapping[str, Any]) -> RequestField | None:
        """Returns the field of a request that is not automatic, or None.

        Raises:
            ServingError: the request has an unknown name, several fields, or a refinement without its field.
        """
        if unknown := content.keys() - self._names:
            names = ", ".join(map(json_tensors.quoted, sorted(unknown)))
            raise invalid(f"unknown names in the body: {names}; valid names: {', '.join(sorted(self._names))}")
        present = [field for field in self.fields if field.name in content and not field.automatic_for]
        if len(present) > 1:
            raise invalid(f"{present[1].requests} cannot be combined with {present[0].noun}")
        for field in self.fields:
            for name in field.refinements:
                if name in content and field not in present and name not in self._automatic:
                    raise invalid(f"'{name}' requires '{field.name}'")
        for name in self._automatic:
            if name in content and present and name not in present[0].refinements:
                raise invalid(f"'{name}' cannot be combined with {present[0].noun}")
        return present[0] if present else None

    def _begin_automatic(
        self,
        loan: Loan,
        signature: Signature,
        inputs: Arrays,
        client_seconds: float | None,
        content: Mapping[str, Any],
    ) -> QueuedCall | None:
        """Queues the first calls of an automatic field; returns None if no such field processes the request."""
        has_inputs = signature.inputs.keys() == inputs.keys() == SIGNATURES.get(signature.name, _NOTHING).inputs.keys()
        for name, field in self._automatic.items():
            if name in content and not (has_inputs and signature.name in field.automatic_for):
                names = ", ".join(map(repr, sorted(field.automatic_for)))
                raise ServingError(
                    Code.UNIMPLEMENTED, f"'{name}' is supported only for the signatures {names} of exports"
                )
        for field in self.fields:
            if has_inputs and signature.name in field.automatic_for:
                field_call = FieldCall(self._core, loan, content, field.name, (signature, inputs), client_seconds)
                if queued := _queue(field, field_call):
                    return queued
        return None

    def _begin_field(self, field: RequestField, loan: Loan, content: dict[str, Any]) -> QueuedCall:
        if content.get("signature_name", SERVING_DEFAULT) not in ("", SERVING_DEFAULT):
            raise invalid(f"only {SERVING_DEFAULT!r} supports {field.noun}; omit 'signature_name'")
        has_signatures = field.signatures <= loan.model.signatures.keys()
        if not has_signatures or list(loan.model.signature(SERVING_DEFAULT).inputs) != ["text"]:
            raise ServingError(Code.UNIMPLEMENTED, f"version {loan.model.version} {field.missing}")
        queued = _queue(field, FieldCall(self._core, loan, content, field.name))
        assert queued, f"{field.name} is not automatic, so it must process every request"
        return queued


def _queue(field: RequestField, call: FieldCall) -> QueuedCall | None:
    """Queues the first calls of a field; closes `call` and returns None if the field does not process the request."""
    with contextlib.ExitStack() as ends:
        ends.callback(call.close)
        try:
            outputs = field.begin(call)
        except InputError as error:
            raise invalid(str(error)) from error
        if outputs is None:
            return None
        ends.pop_all()
    return QueuedCall(outputs, call.close)

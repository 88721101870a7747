"""The server without a network: models, batches and metrics."""

import asyncio
import contextlib
import dataclasses
import pathlib
import re
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future

import numpy as np
from tensorflow_serving.apis import get_model_status_pb2

from t2t_keras.export_contract import STREAM_ADVANCE
from t2t_keras.serving.answer_cache import AnswerCache
from t2t_keras.serving.answers import UnsentAnswers
from t2t_keras.serving.arrivals import wait_for
from t2t_keras.serving.batcher import Batcher
from t2t_keras.serving.configured_models import ConfiguredModels
from t2t_keras.serving.metrics import Metrics
from t2t_keras.serving.options import ServingOptions
from t2t_keras.serving.refusals import Refusals
from t2t_keras.serving.request_errors import Busy, Code, ServingError, invalid
from t2t_keras.serving.served_models import DEFAULT_LOADER, Loader, Model
from t2t_keras.serving.served_signatures import ROW_COST, Arrays, Signature, check_size
from t2t_keras.serving.translation_stream import TranslationStream, complete_stream, streaming_signature
from t2t_keras.serving.versions import Versions, VersionStatus

# The directories of an absolute path.
_FOLDERS = re.compile(r"(?<![\w.:/])/(?:[^\s/:;,'\"()]+/)*(?=\w)")


@dataclasses.dataclass(frozen=True)
class Loan:
    """A model version lent to a request, with the `Versions` object that manages it."""

    model: Model
    versions: Versions


class Core:
    """Runs inference requests on named arrays. Thread-safe and non-blocking.

    Args:
        options: settings of the server.
        loader: loads the versions of the models.

    Attributes:
        metrics: counts requests and batches.
        refusals: counts requests that are refused before they reach a model.
        unsent: tracks the bytes of large responses that are being sent.
        models: the versions of each model.
    """

    def __init__(self, options: ServingOptions, loader: Loader = DEFAULT_LOADER) -> None:
        self.options = options
        self.metrics = Metrics()
        self.refusals = Refusals(self.metrics.refusal)
        self._answers = AnswerCache(options.cache_bytes, self.metrics.cache)
        self.models = ConfiguredModels(options, loader, lambda model: self._answers.forget(model.signatures.values()))
        self.unsent = UnsentAnswers(options.max_unsent_bytes)
        self._free_streams = threading.Semaphore(options.max_stream_requests)
        self._batcher = Batcher(
            options.max_batch_size,
            options.max_batch_bytes,
            options.num_streams,
            options.max_queue_bytes,
            self.metrics.batch,
        )
        self.metrics.watch(
            lambda: self._batcher.waiting,
            lambda: self._batcher.waiting_cost,
            lambda: self.unsent.num_bytes,
            lambda: self._answers.num_bytes,
            lambda: self.models.first.served,
        )

    def close(self, timeout: float) -> bool:
        """Refuses new requests and finishes pending ones.

        Returns:
            Whether all pending requests finished within `timeout` seconds.
        """
        self._answers.close()
        self.models.stop()
        return self._batcher.close(timeout)

    def abandon(self) -> None:
        """Refuses new requests and fails all unanswered ones."""
        self._answers.close()
        self._batcher.abandon()

    @contextlib.contextmanager
    def lend(self, name: str, version: int | str | None) -> Iterator[Loan]:
        """Lends a model for the duration of a `with` block; see `Versions.lend`.

        Args:
            name: name of the model.
            version: version number, label, or None for the latest version.

        Raises:
            ServingError: the model is unknown, the label is unknown, or the version is not served.
        """
        versions = self.models.get(name)
        if not versions:
            servable = f"Specific({name}, {version})" if isinstance(version, int) else f"Latest({name})"
            raise ServingError(Code.NOT_FOUND, f"Servable not found for request: {servable}")
        with versions.lend(version) as model:
            yield Loan(model, versions)

    def submit(
        self,
        loan: Loan,
        signature: Signature,
        inputs: Arrays,
        client_seconds: float | None = None,
        is_first: bool = True,
    ) -> Future[Arrays]:
        """Queues a call. Must be called within the block of `lend`.

        Args:
            loan: the lent model.
            signature: one of the model's signatures.
            inputs: arrays by name.
            client_seconds: deadline of the client in seconds from now, if it has one.
            is_first: whether this is the first queued call of a request. The queue always admits the other calls.

        Returns:
            Future of the outputs. Cancelling it drops the call if it is queued and stops it if it is running.

        Raises:
            ServingError: the call is invalid or exceeds a limit, the queue is full, or the expected wait is too long.
        """
        rows = signature.check(inputs, self.options.limits)
        loan.model.check_tags(inputs)
        seconds = self.options.request_seconds
        if client_seconds is not None:
            seconds = min(seconds, client_seconds)
        wait = seconds if is_first else None
        future = self._answers.submit(
            *(signature, inputs, rows),
            lambda subset, count: self._batcher.submit(signature, subset, signature.costs(subset, count), wait),
        )
        loan.versions.keep(loan.model)
        future.add_done_callback(lambda future: loan.versions.release(loan.model))
        return future

    def submit_all(
        self,
        loan: Loan,
        calls: Iterable[tuple[str, Arrays]],
        client_seconds: float | None = None,
        is_first: bool = True,
    ) -> list[Future[Arrays]]:
        """Queues calls of one request, names of signatures with their inputs, either all or none; see `submit`.

        The limits of the queue apply only to the first call, because a single request may exceed them.
        """
        futures: list[Future[Arrays]] = []
        try:
            for name, inputs in calls:
                futures.append(self.submit(loan, loan.model.signature(name), inputs, client_seconds, is_first))
                is_first = is_first and futures[-1].done()  # as long as all outputs come from the cache
        except ServingError:
            for future in futures:
                future.cancel()
            raise
        return futures

    def begin_stream(self, loan: Loan, inputs: Arrays) -> TranslationStream:
        """Starts to stream the output for one text. Must be called within the block of `lend`.

        Queues the first turn, or returns the complete output if it is cached.

        Args:
            loan: the lent model. Its version stays loaded until the stream is closed.
            inputs: one row of arrays by name, as for the default signature.

        Raises:
            ServingError: the model does not support streaming, the call is invalid or exceeds a limit, the limit of
                concurrent streams is reached, the queue is full, or the expected wait is too long.
        """
        signature, default = streaming_signature(loan.model), loan.model.signature("")
        if (rows := default.check(inputs, self.options.limits)) > 1:
            raise invalid(f"{rows} texts, but a streaming request takes only one")
        loan.model.check_tags(inputs)
        # The scores of a streamed search may differ in the last bits, so only other streams may reuse its outputs.
        advance = loan.model.signature(STREAM_ADVANCE)
        if (cached_outputs := self._answers.find([default, advance], inputs)) is not None:
            return complete_stream(cached_outputs)
        if not self._free_streams.acquire(blocking=False):
            limit = f"max_stream_requests={self.options.max_stream_requests}"
            raise Busy(f"the limit of concurrent streamed responses is {limit}; try again later")
        with contextlib.ExitStack() as ends:
            ends.callback(self._free_streams.release)
            ends.enter_context(self.metrics.stream())
            loan.versions.keep(loan.model)
            ends.callback(loan.versions.release, loan.model)
            # A turn is about as much work as an empty sentence, regardless of the length of the text.
            costs = np.array([ROW_COST])
            seconds = self.options.request_seconds
            first = self._batcher.submit(signature, inputs, costs, seconds)
            return TranslationStream(
                first,
                lambda: self._batcher.submit(signature, inputs, costs, None),
                self.outputs,
                seconds,
                lambda outputs: self._answers.store(advance, inputs, outputs),
                ends.pop_all().close,
            )

    async def outputs(self, future: Future[Arrays], seconds: float | None = None) -> Arrays:
        """Waits for the outputs of a submitted call. Cancelling the wait cancels the call.

        Args:
            future: future returned by `submit`.
            seconds: maximum wait in seconds; the default is `request_seconds`.

        Raises:
            ServingError: the call failed or timed out, or its outputs exceed `max_output_elements`.
        """
        limit = self.options.request_seconds
        try:
            async with asyncio.timeout(limit if seconds is None else seconds):
                outputs = await wait_for(future)
        except TimeoutError:
            raise ServingError(Code.DEADLINE_EXCEEDED, f"no answer within request_seconds={limit:g}") from None
        check_size(outputs, self.options.limits)
        return outputs

    def status(self, name: str, version: int | str | None) -> get_model_status_pb2.GetModelStatusResponse:
        """Returns the status of one version, or of all versions (latest first) if `version` is None.

        Raises:
            ServingError: the model, version or label is unknown.
        """
        versions = self.models.get(name)
        number = versions.number(version) if versions else version
        statuses = versions.statuses() if versions else []
        matching = [status for status in statuses if number in (None, status.version)]
        if not matching:
            versions_text = "any versions" if number is None else f"version {number}"
            raise ServingError(Code.NOT_FOUND, f"Could not find {versions_text} of model {name}")
        response = get_model_status_pb2.GetModelStatusResponse()
        for status in matching:
            _add_status(response, status, versions.export_dir if versions else pathlib.Path())
        return response


def _add_status(
    response: get_model_status_pb2.GetModelStatusResponse, status: VersionStatus, export_dir: pathlib.Path
) -> None:
    entry = response.model_version_status.add(version=status.version)
    entry.state = get_model_status_pb2.ModelVersionStatus.State.Value(status.state)
    entry.status.error_code = status.error.code.value[0] if status.error else 0
    message = status.error.message if status.error else ""
    # Clients can query the status without an API key, so it must not reveal directories of the server. The model's
    # directory is removed first, so that its paths start with the version.
    for folder in (export_dir, export_dir.resolve()):
        message = message.replace(f"{folder}/", "")
    entry.status.error_message = _FOLDERS.sub("", message)

"""Requests that need two rounds of calls, the second of which depends on the outputs of the first."""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from t2t_keras.serving.core import Core, Loan
from t2t_keras.serving.request_errors import ServingError
from t2t_keras.serving.served_signatures import Arrays

# The name of a signature and its inputs.
SignatureCall = tuple[str, Arrays]


class Rounds:
    """A queued request of two rounds; `outputs` waits for the result, unless `cancel` ends the request before.

    Args:
        core: runs the calls.
        loan: the model, within the block of `Core.lend`. It stays loaded for the second round.
        first: the calls of the first round.
        again: returns the calls of the second round, given the outputs of the first; may return none.
        answer: returns the outputs of the request, given those of the second round.
        client_seconds: deadline of the client in seconds from now, if it has one.

    Raises:
        ServingError: a call is invalid or exceeds a limit, the queue is full, or the expected wait is too long.
    """

    def __init__(
        self,
        core: Core,
        loan: Loan,
        first: Sequence[SignatureCall],
        again: Callable[[Sequence[Arrays]], Sequence[SignatureCall]],
        answer: Callable[[Sequence[Arrays]], Arrays],
        client_seconds: float | None = None,
    ) -> None:
        self._core, self._loan, self._again, self._answer = core, loan, again, answer
        limit = core.options.request_seconds
        self._end = time.monotonic() + (limit if client_seconds is None else min(limit, client_seconds))
        self._futures = self._queue_calls(first)
        loan.versions.keep(loan.model)
        self._is_kept = True

    async def outputs(self) -> Arrays:
        """Waits for the outputs of the request. Cancelling the wait stops all calls.

        Raises:
            ServingError: a call failed.
        """
        try:
            calls = await asyncio.to_thread(self._again, await self._answers())
            self._futures = self._queue_calls(calls)
            return await asyncio.to_thread(self._answer, await self._answers())
        finally:
            self.cancel()

    def cancel(self) -> None:
        """Stops all calls that are not done; repeated calls are harmless."""
        for future in self._futures:
            future.cancel()
        if self._is_kept:
            self._is_kept = False
            self._loan.versions.release(self._loan.model)

    def _queue_calls(self, calls: Sequence[SignatureCall]) -> list[Future[Arrays]]:
        """Queues calls, either all or none."""
        seconds = self._end - time.monotonic()
        futures: list[Future[Arrays]] = []
        try:
            for name, inputs in calls:
                futures.append(self._core.submit(self._loan, self._loan.model.signature(name), inputs, seconds))
        except ServingError:
            for future in futures:
                future.cancel()
            raise
        return futures

    async def _answers(self) -> list[Arrays]:
        """Waits for the outputs of the calls that were queued last."""
        seconds = self._end - time.monotonic()
        return await asyncio.gather(*(self._core.outputs(future, seconds) for future in self._futures))

"""Streams the output for one text: a search that is interrupted and resumed every few steps."""

import contextlib
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future

import numpy as np
import tensorflow as tf

from t2t_keras.export_contract import SERVING_DEFAULT, STREAM_ADVANCE, STREAM_BEGIN
from t2t_keras.serving.request_errors import Code, ServingError
from t2t_keras.serving.served_models import Model
from t2t_keras.serving.served_signatures import Arrays, Signature

_DONE = "done"

# Steps per turn. More than one, because each turn has a fixed cost; few, because a word has one or two tokens.
_STEPS = 2


def streaming_signature(model: Model) -> Signature:
    """Returns a stateful signature that runs the search for one text.

    Each call performs a few steps, and returns the outputs so far and whether the search is "done". Only one thread at
    a time may call the signature.

    Raises:
        ServingError: the model lacks the signatures for streaming.
    """
    if not {SERVING_DEFAULT, STREAM_BEGIN, STREAM_ADVANCE} <= model.signatures.keys():
        raise ServingError(
            Code.UNIMPLEMENTED,
            f"version {model.version} has no signatures {STREAM_BEGIN!r} and {STREAM_ADVANCE!r}, so its answers cannot "
            "be streamed; use predict",
        )
    default, begin, advance = (model.signatures[name] for name in (SERVING_DEFAULT, STREAM_BEGIN, STREAM_ADVANCE))
    state: dict[str, tf.Tensor] = {}

    def step(**inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        if not state:
            state.update(begin.function(**inputs))
        outputs = dict(advance.function(steps=tf.constant(_STEPS), **state))
        state.update({name: outputs.pop(name) for name in state})
        return outputs

    outputs = {name: spec for name, spec in advance.outputs.items() if name not in begin.outputs}
    return Signature(STREAM_ADVANCE, default.inputs, outputs, step)


def complete_stream(outputs: Arrays) -> "TranslationStream":
    """Returns a stream whose only turn provides the complete, already known outputs."""
    turn: Future[Arrays] = Future()
    turn.set_result({**outputs, _DONE: np.array(True)})

    async def result(future: Future[Arrays], seconds: float) -> Arrays:
        return future.result()

    return TranslationStream(turn, lambda: turn, result, 0.0, lambda outputs: None, lambda: None)


class TranslationStream:
    """The outputs for one text so far, produced in turns of a few search steps. Must be closed.

    Args:
        first: future of the first turn, which is already queued.
        submit: queues the next turn.
        outputs: waits for the outputs of a turn, at most the given number of seconds.
        seconds: time limit for all turns together.
        on_complete: called with the final outputs.
        on_close: called once, when the stream is closed.
    """

    def __init__(
        self,
        first: Future[Arrays],
        submit: Callable[[], Future[Arrays]],
        outputs: Callable[[Future[Arrays], float], Awaitable[Arrays]],
        seconds: float,
        on_complete: Callable[[Arrays], None],
        on_close: Callable[[], None],
    ) -> None:
        self._next: Future[Arrays] | None = first
        self._submit = submit
        self._outputs = outputs
        self._deadline = time.monotonic() + seconds
        self._on_complete = on_complete
        self._end = contextlib.ExitStack()
        self._end.callback(on_close)

    async def turn(self) -> tuple[Arrays, bool]:
        """Waits for the next turn. Cancelling the wait stops the turn.

        Returns:
            The outputs so far, and whether they are final.

        Raises:
            ServingError: the turn failed, or the time limit is exceeded.
        """
        future, self._next = self._next or self._submit(), None
        outputs = dict(await self._outputs(future, self._deadline - time.monotonic()))
        is_last = bool(outputs.pop(_DONE))
        if is_last:
            self._on_complete(outputs)
        return outputs, is_last

    def close(self) -> None:
        """Ends the stream, and cancels its first turn if nothing has awaited it; repeated calls are harmless."""
        if self._next:
            self._next.cancel()
        self._end.close()

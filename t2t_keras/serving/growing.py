"""The answer to one text while it grows: a search that is left and entered again, some steps at a time."""

import contextlib
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future

import numpy as np
import tensorflow as tf

from t2t_keras.serving.request_errors import Code, ServingError
from t2t_keras.serving.served_models import DEFAULT_SIGNATURE, Model
from t2t_keras.serving.served_signatures import Arrays, Signature

_BEGIN, ADVANCE = "stream_begin", "stream_advance"
_DONE = "done"

# Of a turn. Some work is done in each turn, whatever its steps, and a word has one or two tokens.
_STEPS = 2


def growing_signature(model: Model) -> Signature:
    """What a server runs for one text: each call makes a few more steps, and gives the outputs so far and "done".

    It must be called by one thread at a time.

    Raises:
        ServingError: the model lacks the signatures for it.
    """
    if not {DEFAULT_SIGNATURE, _BEGIN, ADVANCE} <= model.signatures.keys():
        raise ServingError(
            Code.UNIMPLEMENTED,
            f"version {model.version} has no signatures {_BEGIN!r} and {ADVANCE!r}, so that its answers do not grow: "
            "ask with predict",
        )
    default, begin, advance = (model.signatures[name] for name in (DEFAULT_SIGNATURE, _BEGIN, ADVANCE))
    state: dict[str, tf.Tensor] = {}

    def step(**inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        if not state:
            state.update(begin.function(**inputs))
        outputs = dict(advance.function(steps=tf.constant(_STEPS), **state))
        state.update({name: outputs.pop(name) for name in state})
        return outputs

    outputs = {name: spec for name, spec in advance.outputs.items() if name not in begin.outputs}
    return Signature(ADVANCE, default.inputs, outputs, step)


def known(outputs: Arrays) -> "Growing":
    """An answer that is there already, and comes as a whole."""
    turn: Future[Arrays] = Future()
    turn.set_result({**outputs, _DONE: np.array(True)})

    async def result(future: Future[Arrays], seconds: float) -> Arrays:
        return future.result()

    return Growing(turn, lambda: turn, result, 0.0, lambda outputs: None, lambda: None)


class Growing:
    """An answer that grows; close it when it is no longer wanted.

    Args:
        first: the first turn, queued.
        submit: queues another one.
        outputs: waits for the outputs of a turn, at most so many seconds.
        seconds: how long all turns may take together.
        whole: is called with the last outputs, once there are.
        ended: what is to be done at the end.
    """

    def __init__(
        self,
        first: Future[Arrays],
        submit: Callable[[], Future[Arrays]],
        outputs: Callable[[Future[Arrays], float], Awaitable[Arrays]],
        seconds: float,
        whole: Callable[[Arrays], None],
        ended: Callable[[], None],
    ) -> None:
        self._next: Future[Arrays] | None = first
        self._submit = submit
        self._outputs = outputs
        self._until = time.monotonic() + seconds
        self._whole = whole
        self._end = contextlib.ExitStack()
        self._end.callback(ended)

    async def turn(self) -> tuple[Arrays, bool]:
        """Waits for a turn: the outputs after it, and whether they are the last. Cancelling the wait stops the turn.

        Raises:
            ServingError: it failed, or the time is over.
        """
        future, self._next = self._next or self._submit(), None
        outputs = dict(await self._outputs(future, self._until - time.monotonic()))
        is_last = bool(outputs.pop(_DONE))
        if is_last:
            self._whole(outputs)
        return outputs, is_last

    def close(self) -> None:
        """Gives up the turn that nobody has waited for yet, if there is one; may be called again."""
        if self._next:
            self._next.cancel()
        self._end.close()

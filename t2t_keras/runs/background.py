"""Writes checkpoints in a background thread while training continues."""

import functools
import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from t2t_keras.errors import InputError
from t2t_keras.runs import checkpoints
from t2t_keras.runs.checkpoints import Arrays


class CheckpointWriter:
    """A context that saves a run's checkpoints in the background, one at a time, and deletes old ones.

    The process may be killed at any time. A checkpoint is therefore written and renamed first, and only then are old
    checkpoints deleted. A provisional checkpoint, which is still to be validated, is written in full, but old
    checkpoints are deleted only after `complete`.

    An error, such as a full disk, is raised by the next call of `save` or `wait`. Leaving the context waits until
    nothing is being written, except on a KeyboardInterrupt, which must not wait.

    Args:
        directory: the run's `checkpoints` directory.
        keep: number of newest checkpoints to keep besides the best one, at least 1.
        publish: called in the background thread after a checkpoint is written or completed.
    """

    def __init__(self, directory: str | Path, keep: int, publish: Callable[[], None] = lambda: None) -> None:
        self._directory, self._keep, self._publish = Path(directory), keep, publish
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def __enter__(self) -> "CheckpointWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not KeyboardInterrupt:
            self.join()
            if self._error is not None:
                logging.getLogger(__name__).warning("%s", self._error)

    def save(
        self,
        step: int,
        weights: Arrays,
        optimizer: Arrays,
        state: Mapping[str, Any],
        ema: Arrays | None = None,
        *,
        is_provisional: bool = False,
    ) -> None:
        """Waits until the previous checkpoint is written, and starts to write the next one.

        Args:
            step: as in `checkpoints.save`.
            weights: as in `checkpoints.save`; the arrays must not be modified afterwards.
            optimizer: as in `checkpoints.save`; the arrays must not be modified afterwards.
            state: as in `checkpoints.save`.
            ema: as in `checkpoints.save`; the arrays must not be modified afterwards.
            is_provisional: whether `complete` or `withdraw` will be called for this checkpoint.

        Raises:
            InputError: the previous checkpoint could not be written.
        """
        self.wait()
        self._start(
            functools.partial(checkpoints.save, self._directory, step, weights, optimizer, state, ema),
            *([] if is_provisional else [functools.partial(checkpoints.prune, self._directory, self._keep, step)]),
        )

    def complete(self, step: int, state: Mapping[str, Any]) -> None:
        """Replaces the state of the newest checkpoint once it is written, and deletes old checkpoints.

        Args:
            step: step of the newest checkpoint, which an earlier process may have written.
            state: the state after validation.
        """
        self._start(
            functools.partial(checkpoints.replace_state, self._directory, step, state),
            functools.partial(checkpoints.prune, self._directory, self._keep, step),
        )

    def withdraw(self, step: int) -> None:
        """Deletes a provisional checkpoint whose weights are unusable; raises an OSError if that fails."""
        self.join()
        self._error = None
        checkpoints.discard(self._directory, step)

    def join(self) -> None:
        """Waits until nothing is being written, whether that succeeds or fails."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def wait(self) -> None:
        """Waits until nothing is being written; raises an InputError if something could not be written."""
        self.join()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _start(self, *tasks: Callable[[], object]) -> None:
        """Runs tasks and then `publish` in a thread, once the previous thread has ended; skips them if it failed."""
        predecessor = self._thread

        def work() -> None:
            if predecessor is not None:
                predecessor.join()
            try:
                for task in (*tasks, self._publish) if self._error is None else ():
                    task()
            except OSError as error:
                self._error = InputError(f"cannot write in {self._directory}: {error.strerror or error}")
                self._error.__cause__ = error
            except Exception as error:  # of any type, because it would be lost in this thread
                self._error = error

        # A daemon, so that Python does not wait for it at exit after `wait` was interrupted.
        self._thread = threading.Thread(target=work, name="checkpoint", daemon=True)
        self._thread.start()

"""Writes checkpoints in a thread while training goes on."""

import dataclasses
import functools
import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from t2t_keras.errors import InputError
from t2t_keras.machine.files import is_full
from t2t_keras.runs import checkpoints
from t2t_keras.runs.checkpoints import Arrays, Best

_PAUSE_SECONDS = 0.2
_PAUSES_BETWEEN_TRIES = 50


class CheckpointWriter:
    """Saves a run's checkpoints in the background, one at a time; keeps the newest `keep` (at least 1) and the best.

    The process may die at any moment: a checkpoint is written and renamed first, then noted if it is the best, then old
    ones are deleted. A provisional checkpoint is complete on disk, but nothing is deleted before `complete`.

    A full disk does not end training, because stopping would lose no less: a warning is logged, and the next checkpoint
    tries again. Leaving the context closes the writer, except on a KeyboardInterrupt, which must not wait.

    `publish` is called in the thread whenever a checkpoint was written or completed.

    Attributes:
        given_up: the step of the checkpoint that `wait` gave up last.
    """

    given_up: int | None = None

    def __init__(self, directory: str | Path, keep: int, publish: Callable[[], None] = lambda: None) -> None:
        self._directory, self._keep, self._publish = Path(directory), keep, publish
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self._job: Callable[[], Path] | None = None  # saves the checkpoint
        self._step, self._is_provisional = 0, False  # of the job
        self._newest: int | None = None
        self._completion: tuple[int, Mapping[str, Any], Best | None] | None = None  # what `complete` was given
        self._unnoted: Best | None = None

    def __enter__(self) -> "CheckpointWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not KeyboardInterrupt:
            self.close()

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
        """Starts to write a checkpoint, once the previous one is written; arguments as in `checkpoints.save`.

        The arrays must not change any more. A provisional checkpoint needs `complete` or `withdraw` afterwards. Raises
        as `wait`.
        """
        self.wait()
        self._job = functools.partial(checkpoints.save, self._directory, step, weights, optimizer, state, ema)
        self._step, self._is_provisional, self._completion = step, is_provisional, None
        self._start(self._work)

    def complete(self, step: int, state: Mapping[str, Any], best: Best | None = None) -> None:
        """Starts to complete the newest, provisional checkpoint once it is written.

        `state` replaces the one it was saved with; `best` is given if this is the best checkpoint so far.
        """
        before = self._thread

        def work() -> None:
            if before is not None:
                before.join()
            self._completion = step, state, best
            if self._job is None:
                self._work()

        self._start(work)

    def withdraw(self, step: int) -> None:
        """Deletes a provisional checkpoint that turned out to be useless; raises an OSError if that fails."""
        self.join()
        self._job = self._error = None
        checkpoints.discard(self._directory, step)

    def join(self) -> None:
        """Waits until nothing is being written, whether writing succeeded or not."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def wait(self) -> None:
        """Waits until nothing is being written, and gives up what could not be written for lack of room.

        An InputError says that writing failed for another reason.
        """
        self.join()
        self.given_up = self._step if self._job is not None else self.given_up
        self._job, error, self._error = None, self._error, None
        if error is not None and not is_full(error.__cause__):
            raise error

    def best(self) -> Best | None:
        """The best checkpoint that is on the disk, whether it could be noted there or not; for use after `wait`."""
        return self._unnoted or checkpoints.best(self._directory)

    def finish(self, is_in_a_hurry: Callable[[], bool]) -> None:
        """Waits until everything is written, on a full disk until there is room: the newest weights are only in memory.

        Stops waiting for room when `is_in_a_hurry`, which is called now and then, returns True. An InputError says that
        the last checkpoint could not be written.
        """
        self.join()
        if self._is_out_of_room() and not is_in_a_hurry():
            self._warn("waiting for room to save the end of training; Ctrl-C gives up")
        while self._is_out_of_room() and not is_in_a_hurry():
            for _ in range(_PAUSES_BETWEEN_TRIES):
                if not is_in_a_hurry():
                    time.sleep(_PAUSE_SECONDS)
            self._error = None
            self._work(is_said=False)
        self._job, error, self._error = None, self._error, None
        if error is not None:
            raise error

    def close(self) -> None:
        """Waits until nothing is being written, and logs an error that nobody has received."""
        self.join()
        if self._error is not None and not self._is_out_of_room():
            self._warn(str(self._error))
        self._error = self._job = None

    def _start(self, work: Callable[[], None]) -> None:
        # A daemon, so that Python does not wait for it at exit after `wait` was interrupted.
        self._thread = threading.Thread(target=work, name="checkpoint", daemon=True)
        self._thread.start()

    def _work(self, is_said: bool = True) -> None:
        """Does the remaining work; an error is stored for the training thread."""
        try:
            self._write()
        except OSError as error:
            self._error = InputError(f"cannot write in {self._directory}: {error.strerror or error}")
            self._error.__cause__ = error
        except Exception as error:  # any kind: nobody would see it in this thread
            self._error = error
        if self._is_out_of_room() and is_said:
            newest = f"the newest is of step {self._newest:,}" if self._newest is not None else "there is none yet"
            self._warn(f"{self._error} ({newest}); trying again with the next one")

    def _write(self) -> None:
        if self._job is not None:
            self._job()
            self._newest, self._job = self._step, None
            if self._is_provisional and self._completion is None:
                self._publish()
                return
        if self._completion is not None:
            step, state, best = self._completion
            self._unnoted = best or self._unnoted  # the checkpoint is whole, even if its state cannot be replaced
            checkpoints.replace_state(self._directory, step, state)
            self._newest, self._completion = step, None
        if self._unnoted is not None:
            checkpoints.set_best(self._directory, *dataclasses.astuple(self._unnoted))
            self._unnoted = None
        checkpoints.prune(self._directory, self._keep, self._newest)
        self._publish()

    def _is_out_of_room(self) -> bool:
        return self._error is not None and is_full(self._error.__cause__)

    def _warn(self, message: str) -> None:
        logging.getLogger(__name__).warning("%s", message)

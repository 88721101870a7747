"""Writes checkpoints in a background thread while training continues."""

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
    """A context that saves a run's checkpoints in the background, one at a time, and deletes old ones.

    The process may be killed at any time. A checkpoint is therefore written and renamed first, then recorded if it is
    the best, and only then are old checkpoints deleted. A provisional checkpoint, which is still to be validated, is
    written in full, but old checkpoints are deleted only after `complete`.

    A full disk does not end training, because ending it would not save the weights either. A warning is logged, and
    writing is tried again with the next checkpoint. Leaving the context closes the writer, except on a
    KeyboardInterrupt, which must not wait.

    Args:
        directory: the run's `checkpoints` directory.
        keep: number of newest checkpoints to keep besides the best one, at least 1.
        publish: called after a checkpoint is written or completed; usually in the background thread.

    Attributes:
        given_up: step of the last checkpoint that `wait` gave up because the disk was full, or None.
    """

    given_up: int | None = None

    def __init__(self, directory: str | Path, keep: int, publish: Callable[[], None] = lambda: None) -> None:
        self._directory, self._keep, self._publish = Path(directory), keep, publish
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self._job: Callable[[], Path] | None = None  # saves the checkpoint; None once it is written
        self._step, self._is_provisional = 0, False  # of the job
        self._newest: int | None = None  # step of the newest checkpoint written
        self._completion: tuple[int, Mapping[str, Any], Best | None] | None = None  # arguments of `complete`
        self._unnoted: Best | None = None  # not yet recorded in `best.json`

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
        """Waits for the previous checkpoint, and starts to write the next one.

        Args:
            step: as in `checkpoints.save`.
            weights: as in `checkpoints.save`; the arrays must not be modified afterwards.
            optimizer: likewise.
            state: as in `checkpoints.save`.
            ema: like `weights`.
            is_provisional: whether `complete` or `withdraw` will be called for this checkpoint.

        Raises:
            InputError: as `wait`.
        """
        self.wait()
        self._job = functools.partial(checkpoints.save, self._directory, step, weights, optimizer, state, ema)
        self._step, self._is_provisional, self._completion = step, is_provisional, None
        self._start(self._work)

    def complete(self, step: int, state: Mapping[str, Any], best: Best | None = None) -> None:
        """Completes a provisional checkpoint in the background, once it is written.

        Args:
            step: step of the checkpoint, the last one saved here or by an earlier process.
            state: replaces the state that the checkpoint was saved with.
            best: given if this checkpoint is the best so far.
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
        """Deletes a provisional checkpoint instead of completing it; raises an OSError if that fails."""
        self.join()
        self._job = self._error = None
        checkpoints.discard(self._directory, step)

    def join(self) -> None:
        """Waits until the thread has ended, whether or not writing succeeded."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def wait(self) -> None:
        """Waits until the thread has ended, and gives up a checkpoint that could not be written because of a full disk.

        Raises:
            InputError: writing failed for a different reason.
        """
        self.join()
        self.given_up = self._step if self._job is not None else self.given_up
        self._job, error, self._error = None, self._error, None
        if error is not None and not is_full(error.__cause__):
            raise error

    def best(self) -> Best | None:
        """Returns the best checkpoint on disk, even if `best.json` could not be written; call it after `wait`.

        Raises:
            InputError: `best.json` is damaged.
        """
        return self._unnoted or checkpoints.best(self._directory)

    def finish(self, is_in_a_hurry: Callable[[], bool]) -> None:
        """Waits until everything is written. On a full disk, waits for space, because only memory has the last weights.

        Args:
            is_in_a_hurry: called every 0.2 seconds while waiting for space; returns whether to stop waiting.

        Raises:
            InputError: the last checkpoint could not be written.
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
        """Waits until the thread has ended, and logs an error that no other method has raised."""
        self.join()
        if self._error is not None and not self._is_out_of_room():
            self._warn(str(self._error))
        self._error = self._job = None

    def _start(self, work: Callable[[], None]) -> None:
        # A daemon thread, so that Python does not wait for it at exit if `wait` is interrupted.
        self._thread = threading.Thread(target=work, name="checkpoint", daemon=True)
        self._thread.start()

    def _work(self, is_said: bool = True) -> None:
        """Does the remaining work; stores an error for the training thread.

        Args:
            is_said: whether to log a warning if the disk is full.
        """
        try:
            self._write()
        except OSError as error:
            self._error = InputError(f"cannot write in {self._directory}: {error.strerror or error}")
            self._error.__cause__ = error
        except Exception as error:  # of any type, because it would be lost in this thread
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
            self._unnoted = best or self._unnoted  # also if replacing the state fails: the checkpoint is intact
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

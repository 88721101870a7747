"""Training of a run in object storage: one worker writes the run, and all workers begin from the same state."""

import contextlib
import logging
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from t2t_keras.errors import InputError
from t2t_keras.machine import remote, remote_exports
from t2t_keras.machine.remote import LeaseLostError, Mirror
from t2t_keras.machine.standard_error import tell
from t2t_keras.training.devices.cluster import WorkerLostError

from . import remote_paths

if TYPE_CHECKING:
    from t2t_keras.training.devices.workers import Workers

_SETTINGS = ("config.json", "vocab.model", "vocab.source.model", "truecase.txt", "characters.json")


@contextlib.contextmanager
def held(path: str | os.PathLike[str], workers: "Workers") -> Iterator[None]:
    """Within the context, no other process may train the run whose mirror is at a path; does nothing for other paths.

    First, the chief takes the lease and names the newest state. Each worker then fetches the files that it needs into
    its own mirror. The `Trainer` of the chief publishes checkpoints, and this context publishes the final state. If any
    of this fails for one worker, all workers end.

    Args:
        path: path of the run.
        workers: the workers of the training.

    Raises:
        InputError: access is denied, another process trains the run, or the run cannot be fetched or published.
        WorkerLostError: a worker is lost.
    """
    mirror = remote.mirror_of(path)
    if mirror is None:
        yield
        return
    with contextlib.ExitStack() as exits:
        with workers.raising_worker_lost():
            _fetch(mirror, workers, exits)
        try:
            yield
        except (WorkerLostError, InputError):  # for example, for weights that were withdrawn
            try:
                if workers.is_chief:
                    mirror.publish()
            except LeaseLostError:
                pass
            except InputError as error:  # must not hide the reason why training ended
                logging.getLogger(__name__).warning("not published: %s", error)
            raise
        with workers.raising_worker_lost(), workers.fail_together():
            if workers.is_chief:
                mirror.publish()


def _fetch(mirror: Mirror, workers: "Workers", exits: contextlib.ExitStack) -> None:
    """Takes the lease, and fetches the same state for all workers."""
    number = 0
    with workers.fail_together():
        if workers.is_chief:
            if remote_exports.is_export(mirror.store):
                raise InputError(
                    f"{mirror.url} holds an exported model, which cannot be trained; use a different --model_dir"
                )
            exits.enter_context(mirror.held(tell))
            number = mirror.number
    first, *_ = workers.gather(str(number).encode())
    with workers.fail_together():
        if workers.is_chief:
            mirror.fetch(remote_paths.resumption_files)  # newer files come from programs that evaluate or average
        else:
            mirror.fetch(_required_files, int(first))


def _required_files(names: list[str]) -> list[str]:
    """Returns the files that every worker reads: the settings, and the checkpoint from which training resumes."""
    arrays = [
        name
        for name in remote_paths.resumption_files(names)
        if name.startswith("checkpoints/") and name.endswith(".npz")
    ]
    folders = {name.rpartition("/")[0] for name in arrays}
    return [name for name in names if name in _SETTINGS or name.rpartition("/")[0] in folders]

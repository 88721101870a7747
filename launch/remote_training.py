"""A run in object storage while it is trained: one worker writes it, and all of them begin from the same state."""

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

_SETTINGS = ("config.json", "vocab.model", "vocab.source.model", "truecase.txt")


@contextlib.contextmanager
def held(path: str | os.PathLike[str], workers: "Workers") -> Iterator[None]:
    """Within the context, nobody else may train the run whose mirror is at a path; other paths are left alone.

    First the chief takes the lease and names the newest state, of which each worker fetches what it needs into a mirror
    of its own. The `Trainer` of the chief publishes checkpoints, and what is there at the end is published here. Where
    any of this fails for one worker, all of them end.

    Raises:
        InputError: there is no access, another process trains the run, or it cannot be fetched or published.
        WorkerLostError: another worker is gone.
    """
    mirror = remote.mirror_of(path)
    if mirror is None:
        yield
        return
    with contextlib.ExitStack() as lease:
        with workers.raising_worker_lost():
            _fetch(mirror, workers, lease)
        try:
            yield
        except (WorkerLostError, InputError):  # such as weights that were withdrawn
            try:
                if workers.is_chief:
                    mirror.publish()
            except LeaseLostError:
                pass
            except InputError as error:  # it must not hide why training ended
                logging.getLogger(__name__).warning("not published: %s", error)
            raise
        with workers.raising_worker_lost(), workers.fail_together():
            if workers.is_chief:
                mirror.publish()


def fetch_settings(path: str | os.PathLike[str]) -> None:
    """Fetches the settings of the run whose mirror is at a path, for what is done before the workers meet."""
    if (mirror := remote.mirror_of(path)) is not None:
        mirror.fetch(lambda names: [name for name in names if name in _SETTINGS])


def _fetch(mirror: Mirror, workers: "Workers", lease: contextlib.ExitStack) -> None:
    """Takes the lease, and makes the mirrors of all workers those of one state."""
    number = 0
    with workers.fail_together():
        if workers.is_chief:
            if remote_exports.is_export(mirror.store):
                raise InputError(
                    f"{mirror.url} holds an exported model, which cannot be trained; use another --model_dir"
                )
            lease.enter_context(mirror.held(tell))
            number = mirror.number
    first, *_ = workers.gather(str(number).encode())
    with workers.fail_together():
        if workers.is_chief:
            mirror.fetch(remote_paths.resumption_files)  # what is newer by now is of those who evaluate or average
        else:
            mirror.fetch(_required_files, int(first))


def _required_files(names: list[str]) -> list[str]:
    """What every worker reads of a run: its settings, and the checkpoint that training goes on from."""
    arrays = [
        name
        for name in remote_paths.resumption_files(names)
        if name.startswith("checkpoints/") and name.endswith(".npz")
    ]
    folders = {name.rpartition("/")[0] for name in arrays}
    return [name for name in names if name in _SETTINGS or name.rpartition("/")[0] in folders]

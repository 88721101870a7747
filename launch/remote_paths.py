"""Flags whose folders may be in object storage: while a program runs, mirrors take the place of these folders."""

import contextlib
import logging
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from absl import flags

from t2t_keras.errors import InputError
from t2t_keras.machine import remote_exports
from t2t_keras.machine.object_store import is_url
from t2t_keras.machine.remote import Mirror, files_of
from t2t_keras.runs import checkpoints
from t2t_keras.runs.checkpoints import STEP_NAME

_Role = Callable[[str], contextlib.AbstractContextManager[str]]


_LONGEST_PAUSE = 60.0  # seconds between attempts to fetch a version that cannot be fetched


@contextlib.contextmanager
def mirrored(roles: Mapping[str, _Role]) -> Iterator[None]:
    """Within the context, the named flags have paths of mirrors instead of URLs.

    Args:
        roles: for each flag, a context that fetches on entry, and publishes on exit unless an error occurred.
    """
    with contextlib.ExitStack() as stack:
        for name, role in roles.items():
            flag = flags.FLAGS[name]
            if isinstance(flag.value, list):
                flag.value = [stack.enter_context(role(each)) if is_url(each) else each for each in flag.value]
            elif is_url(flag.value):
                flag.value = stack.enter_context(role(flag.value))
        yield


@contextlib.contextmanager
def read(url: str) -> Iterator[str]:
    """Mirrors prepared data with all files."""
    mirror = Mirror(url)
    _check_any(mirror)
    mirror.fetch()
    yield str(mirror.path)


@contextlib.contextmanager
def written(url: str) -> Iterator[str]:
    """Mirrors prepared data, which need not exist yet, and publishes it in the end."""
    mirror = Mirror(url)
    marker = mirror.path.with_name(".preparing")  # exists while the mirror has unpublished contents
    if not mirror.is_empty:
        mirror.fetch()
        marker.unlink(missing_ok=True)
    elif not marker.exists():
        mirror.fetch()  # removes files that were published and have been deleted since
        marker.touch()
    yield str(mirror.path)
    mirror.publish(exclusive=True)
    marker.unlink(missing_ok=True)


@contextlib.contextmanager
def model(url: str) -> Iterator[str]:
    """Mirrors a run or an export, with the checkpoints that the program's flags name."""
    yield str(_fetched_model(url, *_selection_of_flags()).path)


@contextlib.contextmanager
def member(url: str) -> Iterator[str]:
    """Mirrors an additional run or export, MODEL_DIR or MODEL_DIR@CHECKPOINT."""
    place, separator, checkpoint = url.rpartition("@")
    if not separator or "/" in checkpoint:
        place, separator, checkpoint = url, "", ""
    mirror = _fetched_model(place, [checkpoint] if checkpoint else [])
    yield f"{mirror.path}{separator}{checkpoint}"


@contextlib.contextmanager
def added_to(url: str) -> Iterator[str]:
    """Like `model`, and publishes the files that the program adds to a run."""
    mirror = _fetched_model(url, *_selection_of_flags())
    yield str(mirror.path)
    if not remote_exports.is_export(mirror.store):
        mirror.publish()


@contextlib.contextmanager
def vocabulary(url: str) -> Iterator[str]:
    """Mirrors a run or an export with its vocabulary and without weights."""
    mirror = Mirror(url)
    _fetch(mirror, lambda folders: [])
    yield str(mirror.path)


@contextlib.contextmanager
def place(url: str) -> Iterator[str]:
    """Yields the local path of a run for `remote_training`, or of an export for `remote_exports`."""
    yield str(Mirror(url).path)


@contextlib.contextmanager
def served(url: str) -> Iterator[str]:
    """Mirrors an export; fetches its newest version now and every --poll_seconds."""
    mirror, stop = Mirror(url), threading.Event()
    _check_any(mirror)
    if remote_exports.is_version(mirror.store):
        parent = mirror.url.rpartition("/")[0]
        raise InputError(f"--export_dir={url} contains no numbered versions; give --export_dir={parent}")
    remote_exports.fetch_newest(mirror.store, mirror.path)

    def follow() -> None:
        complaint, pause = "", flags.FLAGS.poll_seconds
        while not stop.wait(pause):
            try:
                remote_exports.fetch_newest(mirror.store, mirror.path)
                complaint, pause = "", flags.FLAGS.poll_seconds
            except Exception as error:  # of any kind: a later version may still succeed
                if str(error) != complaint:
                    logging.getLogger("t2t_keras.serving").warning("%s", error)
                # Each attempt downloads the whole version again.
                complaint, pause = str(error), max(pause, min(2 * pause, _LONGEST_PAUSE))

    threading.Thread(target=follow, name="fetch", daemon=True).start()
    try:
        yield str(mirror.path)
    finally:
        stop.set()


def _selection_of_flags() -> tuple[list[str], int | None]:
    """Returns the names of checkpoints and the number of newest checkpoints that the program's flags request."""
    flag = flags.FLAGS
    names = [flag.checkpoint] if "checkpoint" in flag and flag.checkpoint else []
    if "checkpoints" in flag and flag.checkpoints:
        names = flag.checkpoints
    if "average_epochs" in flag and flag.average_epochs:
        return names, sys.maxsize  # their number is known once their states are read
    return names, flag.average_last if "average_last" in flag else None


def _fetched_model(url: str, names: Sequence[str], last: int | None = None) -> Mirror:
    """Fetches an export, or a run with some of its checkpoints.

    Args:
        url: URL of the export or run.
        names: names of the checkpoints to fetch.
        last: number of newest steps to fetch; without `names` and `last`, the newest step and all averages are fetched.

    Returns:
        The mirror.
    """
    mirror = Mirror(url)

    def select(folders: list[str]) -> list[str]:
        if names:
            return [folder for name in names for folder in _folders_of(mirror, folders, name)]
        other_folders = [folder for folder in folders if not STEP_NAME.fullmatch(folder)]
        return _steps(folders)[-last:] if last else [*other_folders, *_steps(folders)[-1:]]

    _fetch(mirror, select)
    return mirror


def _folders_of(mirror: Mirror, folders: list[str], name: str) -> list[str]:
    """Returns the folders of the checkpoint with this name."""
    if name == "latest":
        return _steps(folders)[-1:]
    if name == "best":
        mirror.fetch(lambda names: _select_files(names, lambda _: []))
        best = checkpoints.best(mirror.path / "checkpoints")
        return [checkpoints.step_name(best.step)] if best else []
    return [checkpoints.step_name(int(name)) if name.isascii() and name.isdigit() else name]


def _fetch(mirror: Mirror, select: Callable[[list[str]], Collection[str]]) -> None:
    """Fetches an export, or a run with the weights of the checkpoints that `select` selects by folder name."""
    _check_any(mirror)
    if remote_exports.is_version(mirror.store):
        remote_exports.fetch_version(mirror.store, mirror.path)
    elif remote_exports.is_export(mirror.store):
        for name, path in files_of(mirror.path):
            if not name.partition("/")[0].isdecimal():  # left by a run that had this URL before
                path.unlink()
        remote_exports.fetch_newest(mirror.store, mirror.path)
    else:
        mirror.fetch(lambda names: _select_files(names, select))


def resumption_files(names: list[str]) -> list[str]:
    """Returns the files that training needs: of the checkpoints' arrays, only those of the newest step."""
    return _select_files(names, lambda folders: _steps(folders)[-1:], with_optimizer=True)


def _select_files(
    names: list[str], select: Callable[[list[str]], Collection[str]], with_optimizer: bool = False
) -> list[str]:
    """Returns the files of a run, without the arrays of the checkpoints that `select` omits."""
    parts_by_name = {name: name.split("/") for name in names}
    folders = sorted({parts[1] for parts in parts_by_name.values() if parts[0] == "checkpoints" and len(parts) == 3})
    selection = set(select(folders))

    def is_chosen(name: str) -> bool:
        parts = parts_by_name[name]
        if parts[0] != "checkpoints" or not name.endswith(".npz"):
            return True
        return parts[1] in selection and (with_optimizer or parts[-1] != "optimizer.npz")

    return [name for name in names if is_chosen(name)]


def _steps(folders: list[str]) -> list[str]:
    return sorted((name for name in folders if STEP_NAME.fullmatch(name)), key=lambda name: int(name.split("_")[1]))


def _check_any(mirror: Mirror) -> None:
    """Raises InputError for a URL where nothing is published."""
    if not remote_exports.is_export(mirror.store) and mirror.is_empty:
        raise InputError(
            f"{mirror.url}: the bucket is missing, or it contains no complete run, prepared data or export there"
        )

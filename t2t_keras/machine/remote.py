"""Mirrors directories in object storage locally.

A directory has these objects below its URL:

    files/NAME.HASH          contents of a file; HASH is computed from them, so that an object never changes
    state/000000000042.json  SHA-256 and size of every file, and the lease of the training process; the newest state
                             is the current one

A state is written after its files, by exclusive creation of the next number. If two writers compete, one of them
creates the object, and the other starts again from that state. Readers therefore see either the old or the new
directory, never a mixture.
"""

import contextlib
import fcntl
import hashlib
import itertools
import json
import logging
import os
import shutil
import socket
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from t2t_keras.errors import InputError
from t2t_keras.machine.files import sha256, temporary_name
from t2t_keras.machine.locking import BusyError
from t2t_keras.machine.object_store import Store, is_url

LEASE_SECONDS = 180.0  # a lease that is not renewed within this time expires
_RENEWALS = 6  # number of renewals within that time
_CHECKS = 10  # number of checks between two renewals, by a process that waits for the lease
_NUM_STATES = 20  # older ones are deleted; some are kept because a listing may lag behind
_TRIES = 20  # number of attempts of a writer, if others are faster
_PROBE = "state/probe"  # a store that creates this object twice does not support exclusive creation
_LOCAL = ("tensorboard",)  # not uploaded; restored from metrics.jsonl
_APPENDED = ".jsonl"  # suffix of files that grow; all others are replaced as a whole

_MIRRORS: dict[Path, "Mirror"] = {}  # mirrors of this process by path


class _File(NamedTuple):
    """A file as recorded in a state."""

    sha256: str
    size: int

    def object_name(self, name: str) -> str:
        return f"files/{name}.{self.sha256[:16]}"


class LeaseLostError(InputError):
    """Another process has taken over the run's lease, so this one may not publish any more."""


class Mirror:
    """A local copy of a directory in object storage, used by this process only.

    Args:
        url: URL of the directory.

    Attributes:
        url: the URL without a trailing slash.
        path: the local directory; its name is the last part of the URL.

    Raises:
        InputError: as `Store`.
        OSError: the cache directory cannot be written.
    """

    def __init__(self, url: str) -> None:
        self.store = Store(url)
        self.url = self.store.url
        self.path = _free_slot(self.url) / (PurePosixPath(self.url).name or "root")
        self.path.mkdir(exist_ok=True)
        self._number = 0  # of the newest state seen so far
        self._base: dict[str, _File] = {}  # files of the state on which the local directory is based
        self._fetched_names: set[str] = set()
        self._checksums: dict[str, tuple[tuple[int, ...], _File]] = {}  # cached checksums, by file and its stat
        self._update_lock = threading.Lock()
        self._publish_lock = threading.Lock()
        self._token = ""
        self._has_warned = False  # whether it was reported that objects cannot be deleted
        _MIRRORS[self.path] = self

    @property
    def is_empty(self) -> bool:
        """Whether the URL has no files yet; raises the errors of `Store`."""
        return not self._find_newest()[1]["files"]

    @property
    def number(self) -> int:
        """The number of the newest state, for `fetch` on other machines; 0 if there is none. Raises as `is_empty`."""
        return self._find_newest()[0]

    def fetch(self, choose: Callable[[list[str]], Collection[str]] = list, number: int | None = None) -> None:
        """Synchronises the local directory with the newest state, or with the state of a given number.

        Args:
            choose: takes the names of all files, such as "checkpoints/step_00000010/weights.npz", and returns those to
                download. For the other files, only their directories are created.
            number: number of a recent state; None means the newest. States do not change, so all processes that fetch
                the same number get the same files.

        Raises:
            InputError: a file is missing or damaged in the store, the disk is full, the state does not exist, or as
                `Store`.
        """
        while True:
            state_number, document = self._find_newest() if number is None else (number, self._state(number))
            files = {name: _File(*values) for name, values in document["files"].items()}
            failure = self._fetch(files, set(choose(list(files))))
            if not failure:
                self._base = files
                return
            if number is not None or self._find_newest()[0] == state_number:  # else another process just replaced it
                raise InputError(f"{self.url}/{failure} belongs to state {state_number}, but is missing or damaged")

    def _fetch(self, files: dict[str, _File], names: set[str]) -> str:
        """Downloads missing files and removes unwanted ones.

        Returns the name of the first file that could not be downloaded, or "".
        """
        self._fetched_names = names
        for name, path in files_of(self.path, hidden=True):
            if name not in names or self._measure(name, path) != files[name]:
                path.unlink()
        for folder, _, _ in os.walk(self.path, topdown=False):
            if folder != str(self.path) and not os.listdir(folder):
                os.rmdir(folder)
        for name, file in files.items():
            path = self.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if name not in names or path.exists():
                continue
            if not download(self.store, file.object_name(name), path, file.sha256, file.size):
                return name
        return ""

    def publish(self, exclusive: bool = False) -> None:
        """Publishes the local changes as a new state, merged with changes that others published in the meantime.

        Args:
            exclusive: whether changes by other processes are an error, because the files belong together.

        Raises:
            LeaseLostError: another process took over the lease of `held`.
            InputError: as `Store`, or `exclusive` is set and others published changes. The state is unchanged.
        """
        with self._publish_lock:
            files = {name: self._upload(name, path) for name, path in files_of(self.path)}
            deletions = {name for name in self._base if name not in files and self._is_gone(name)}
            # Files that did not change locally are not published: others may have replaced or removed them.
            changes = {name: file for name, file in files.items() if self._base.get(name) != file}
            if not changes and not deletions:
                return
            old_objects: set[str] = set()

            def merge(document: dict[str, Any]) -> dict[str, Any]:
                published = {name: _File(*values) for name, values in self._check_lease(document)["files"].items()}
                if exclusive and published not in (self._base, files):  # equals `files` if a request was repeated
                    raise InputError(
                        f"{self.url}: another process has published there in the meantime; its state is kept"
                    )
                old_objects.clear()
                old_objects.update(file.object_name(name) for name, file in published.items())
                return {**document, "files": {name: published[name] for name in published.keys() - deletions} | changes}

            new_files = self._update(merge)["files"]
            self._base = {name: self._base[name] for name in self._base.keys() - deletions} | changes
            self._fetched_names |= changes.keys()
            self._remove(sorted(old_objects - {file.object_name(name) for name, file in new_files.items()}))

    def _remove(self, names: list[str]) -> None:
        """Deletes objects that no state needs any more; a refusal is only a warning, because publishing succeeded."""
        try:
            self.store.remove(names)
        except InputError as error:
            if not self._has_warned:  # only once, because without permission every update would fail here
                logging.getLogger(__name__).warning("unused objects cannot be deleted: %s", error)
            self._has_warned = True

    def _is_gone(self, name: str) -> bool:
        """Returns whether a file that is missing locally was removed, rather than never downloaded.

        Files that were not downloaded still have a local directory, see `fetch`; it is missing only if it was removed.
        """
        return name in self._fetched_names or not (self.path / name).parent.is_dir()

    def _upload(self, name: str, path: Path) -> _File:
        """Uploads a file unless the state has it."""
        file = self._measure(name, path)
        if file == self._base.get(name):
            return file
        # The file must not change during the upload: a hard link preserves one that is replaced, a copy one that grows.
        copy = self.path.parent / temporary_name(path.name)
        try:
            (shutil.copyfile if name.endswith(_APPENDED) else os.link)(path, copy)
            file = self._measure(name, copy)
            self.store.put(copy, file.object_name(name))
        finally:
            copy.unlink(missing_ok=True)
        return file

    def _measure(self, name: str, path: Path) -> _File:
        stat = path.stat()
        look = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        if self._checksums.get(name, (None,))[0] != look:
            self._checksums[name] = (look, measured(path))
        return self._checksums[name][1]

    @contextlib.contextmanager
    def held(self, report: Callable[[str], None]) -> Iterator[None]:
        """A context that keeps other trainers out by a lease in the state, which a thread renews.

        If another process holds the lease, the context waits until the lease is released, is renewed or expires.

        Args:
            report: called with a line of text if waiting is necessary, and if an expired lease is taken over.

        Raises:
            BusyError: another process holds the lease and has renewed it; the message names the process.
            InputError: as `Store`, or the store does not support exclusive creation.
        """
        token, end = uuid.uuid4().hex, threading.Event()

        def take(document: dict[str, Any]) -> dict[str, Any]:
            lease = document["lease"]
            if lease and lease["token"] != token:
                if _silence(lease) < LEASE_SECONDS:
                    raise self._busy(lease)
                report(f"{self.url} was being trained {_holder(lease)}; its lease is taken over")
            return {**document, "lease": _lease(token)}

        if self.store.create(_PROBE, b"") and self.store.create(_PROBE, b""):
            raise InputError(
                f"{self.url}: this store replaces existing objects on creation, so runs are not safe in it"
            )
        self._wait_for_lease(report)
        thread = threading.Thread(target=self._renew, args=(end,), name="lease", daemon=True)
        self._token = token
        try:
            self._update(take)  # inside `try`: after an error, the store may have the lease nevertheless
            thread.start()
            yield
        finally:
            end.set()
            if thread.is_alive():
                thread.join()
            with contextlib.suppress(InputError):  # a lease that cannot be released expires
                self._update(lambda document: {**self._check_lease(document), "lease": None})
            self._token = ""

    def _wait_for_lease(self, report: Callable[[str], None]) -> None:
        """Returns once no other process holds a lease; raises a BusyError if a lease is renewed in the meantime."""
        first = None
        while (lease := self._find_newest()[1]["lease"]) and _silence(lease) < LEASE_SECONDS:
            if first is None:
                first = lease
                duration = f"{LEASE_SECONDS - _silence(lease):.0f} s at most"
                report(
                    f"{self.url} is or was being trained {_holder(lease)}: waiting for a renewal of its lease, "
                    f"{duration}"
                )
            elif lease != first:
                raise self._busy(lease)
            time.sleep(LEASE_SECONDS / _RENEWALS / _CHECKS)

    def _busy(self, lease: dict[str, Any]) -> BusyError:
        return BusyError(f"{self.url} is already being trained {_holder(lease)}")

    def _renew(self, end: threading.Event) -> None:
        while not end.wait(LEASE_SECONDS / _RENEWALS):
            try:
                self._update(lambda document: {**self._check_lease(document), "lease": _lease(self._token)})
            except LeaseLostError as error:
                logging.getLogger(__name__).warning("%s", error)
                return
            except InputError as error:
                logging.getLogger(__name__).warning("the lease cannot be renewed now: %s", error)

    def _check_lease(self, document: dict[str, Any]) -> dict[str, Any]:
        """Returns the state; raises a LeaseLostError if this process has lost its lease."""
        lease = document["lease"]
        if self._token and (lease or {}).get("token") != self._token:
            holder = lease["holder"] if lease else "another process, which has ended"
            raise LeaseLostError(f"{self.url} was taken over by {holder}; this training run no longer publishes there")
        return document

    def _find_newest(self) -> tuple[int, dict[str, Any]]:
        """Returns the number and the contents of the newest state; 0 and an empty state if there is none."""
        numbers = [int(name[:-5]) for name in self.store.names("state") if name[:-5].isdecimal()]
        number, contents = max([self._number, *numbers]), None
        if number:
            contents = self.store.read(self._state_name(number))
            if contents is None:
                raise InputError(f"{self.url}: its listing names a state that no longer exists; try again")
        # A listing may lag behind the created objects.
        while (next_contents := self.store.read(self._state_name(number + 1))) is not None:
            number, contents = number + 1, next_contents
        if contents is None:
            return 0, {"files": {}, "lease": None}
        self._number = number
        return number, self._parse(number, contents)

    def _state(self, number: int) -> dict[str, Any]:
        contents = self.store.read(self._state_name(number))
        if contents is None:
            raise InputError(f"{self.url}/{self._state_name(number)} no longer exists; try again")
        return self._parse(number, contents)

    def _parse(self, number: int, contents: bytes) -> dict[str, Any]:
        try:
            document = json.loads(contents)
            return {"files": document["files"], "lease": document["lease"]}
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{self.url}/{self._state_name(number)} is damaged: {error}") from None

    def _update(self, change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
        """Publishes a changed state and returns it; calls `change` again if another process was faster."""
        with self._update_lock:
            for _ in range(_TRIES):
                number, document = self._find_newest()
                document = change(document)
                if self.store.create(self._state_name(number + 1), json.dumps(document, indent=1).encode()):
                    self._number = number + 1
                    if number >= _NUM_STATES:
                        self._remove([self._state_name(number + 1 - _NUM_STATES)])
                    return document
        raise InputError(f"{self.url}: other processes keep writing there; try again")

    @staticmethod
    def _state_name(number: int) -> str:
        return f"state/{number:012d}.json"


def mirror_of(path: str | os.PathLike[str]) -> Mirror | None:
    """Returns the mirror of this process that contains a local path, or None."""
    folder = Path(os.path.abspath(path))
    return next((_MIRRORS[each] for each in (folder, *folder.parents) if each in _MIRRORS), None)


def with_urls(text: str) -> str:
    """Replaces the paths of mirrors in a text with their URLs."""
    for path, mirror in _MIRRORS.items():
        text = text.replace(str(path), mirror.url)
    return text


def origin(path: str | os.PathLike[str]) -> str:
    """Returns the location of a path for other machines: its URL if it is in a mirror, else the absolute path."""
    return str(path).rstrip("/") if is_url(path) else with_urls(os.path.abspath(path))


def local(path: str) -> str:
    """Returns the local path for a result of `origin`; a URL without a mirror is fetched, with errors as `Mirror`."""
    if not is_url(path):
        return path
    for mirror in _MIRRORS.values():
        local_path = f"{mirror.path}{path.removeprefix(mirror.url)}"
        if path == mirror.url or (path.startswith(f"{mirror.url}/") and os.path.exists(local_path)):
            return local_path
    mirror = Mirror(path)
    mirror.fetch()
    return str(mirror.path)


def publishing(path: str | os.PathLike[str]) -> Callable[[], None]:
    """Returns a function that publishes a directory in a mirror; for other directories, it does nothing.

    An InputError is logged as a warning, because the next call publishes the missing files. A LeaseLostError is raised.
    """
    mirror = mirror_of(path)

    def publish() -> None:
        try:
            if mirror is not None:
                mirror.publish()
        except LeaseLostError:
            raise
        except InputError as error:
            logging.getLogger(__name__).warning("not published: %s; trying again with the next checkpoint", error)

    return publish


def download(store: Store, name: str, path: Path, expected: str, size: int) -> bool:
    """Downloads an object to `path`.

    Returns whether it exists with the expected SHA-256 and size; otherwise no file is written.
    """
    temporary = path.with_name(temporary_name(path.name))
    try:
        if not store.get(name, temporary) or measured(temporary) != (expected, size):
            return False
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return True


def measured(path: Path) -> _File:
    """Computes the SHA-256 and the size of a file."""
    return _File(sha256(path), path.stat().st_size)


def files_of(folder: Path, hidden: bool = False) -> list[tuple[str, Path]]:
    """Returns the files below a directory as (relative name, path).

    Without `hidden`, omits names with a leading dot, which are temporary or local, and the directories in `_LOCAL`.
    """
    files = [(path.relative_to(folder), path) for path in sorted(folder.rglob("*")) if path.is_file()]
    return [
        (name.as_posix(), path)
        for name, path in files
        if hidden or not (name.parts[0] in _LOCAL or any(part.startswith(".") for part in name.parts))
    ]


def _lease(token: str) -> dict[str, Any]:
    return {"token": token, "holder": f"process {os.getpid()} on {socket.gethostname()}", "time": time.time()}


def _silence(lease: dict[str, Any]) -> float:
    """Returns the seconds since a lease was taken or last renewed."""
    return max(0.0, time.time() - lease["time"])


def _holder(lease: dict[str, Any]) -> str:
    return f"by {lease['holder']}, last heard from {_silence(lease):.0f} s ago"


def _free_slot(url: str) -> Path:
    """Returns a cache directory for a URL that no other process uses; it may have files of earlier processes."""
    cache = os.environ.get("T2T_KERAS_CACHE") or Path.home() / ".cache" / "t2t_keras"
    folder = Path(cache).absolute() / "remote" / hashlib.sha256(url.encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "url").write_text(f"{url}\n", encoding="utf-8")
    for number in itertools.count():
        slot = folder / str(number)
        slot.mkdir(exist_ok=True)
        descriptor = os.open(slot / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until the process ends
        except BlockingIOError:
            os.close(descriptor)
            continue
        for path in list(slot.rglob(".*.tmp")):  # of killed processes; hard links of uploads occupy space
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        return slot
    raise AssertionError

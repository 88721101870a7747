"""Folders in object storage, worked on in local mirrors.

Below its URL, a folder has

    files/NAME.HASH          what files contain; HASH is of the contents, so no object ever changes
    state/000000000042.json  the newest one is the folder: the SHA-256 and size of every file, and who trains it

A state is made last, by exclusive creation of the next number: of two writers one gets it, and the other starts from
the state of the first. Readers see the folder of before or the folder of after, and never a mixture.
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

LEASE_SECONDS = 180.0  # after which a trainer that was not heard of has no claim
_RENEWALS = 6  # within that time
_LOOKS = 10  # between two renewals, of a process that waits for the lease
_KEPT_STATES = 20  # by how many a listing may lag behind
_TRIES = 20  # of a writer, when others are faster
_PROBE = "state/probe"  # made at the first time; a store that lets it be made again has no exclusive creation
_LOCAL = ("tensorboard",)  # made anew from metrics.jsonl
_APPENDED = ".jsonl"  # a file that grows; all others are replaced as a whole

_MIRRORS: dict[Path, "Mirror"] = {}  # of this process, by path


class _File(NamedTuple):
    """A file as a state names it."""

    sha256: str
    size: int

    def object_name(self, name: str) -> str:
        return f"files/{name}.{self.sha256[:16]}"


class LeaseLostError(InputError):
    """Another process trains the run by now, so that nothing more may be published."""


class Mirror:
    """A local folder that stands for a URL while this process works.

    Args:
        url: the folder in object storage.

    Attributes:
        url: as given, without a slash at its end.
        path: the local folder, of no other process; its name is the last part of the URL.

    Raises:
        InputError: as `Store`.
        OSError: the folder for mirrors cannot be written.
    """

    def __init__(self, url: str) -> None:
        self.store = Store(url)
        self.url = self.store.url
        self.path = _free_slot(self.url) / (PurePosixPath(self.url).name or "root")
        self.path.mkdir(exist_ok=True)
        self._number = 0  # of the newest state that was seen
        self._base: dict[str, _File] = {}  # the state that the local folder began from
        self._fetched: set[str] = set()
        self._looks: dict[str, tuple[tuple[int, ...], _File]] = {}  # what was measured of which local file
        self._updating = threading.Lock()
        self._publishing = threading.Lock()
        self._token = ""
        self._warned = False  # that nothing can be deleted
        _MIRRORS[self.path] = self

    @property
    def is_empty(self) -> bool:
        """Whether nothing was published there yet; raises as `Store`."""
        return not self._newest()[1]["files"]

    @property
    def number(self) -> int:
        """The number of the newest state, which another machine's `fetch` takes; 0 if there is none; as `is_empty`."""
        return self._newest()[0]

    def fetch(self, choose: Callable[[list[str]], Collection[str]] = list, number: int | None = None) -> None:
        """Makes the local folder that of the newest state, or of the one with a number.

        Args:
            choose: given the names of all files, such as "checkpoints/step_00000010/weights.npz", returns those to
                download; of the others, the folders are made.
            number: of a state that was the newest some minutes ago. It never changes, so that all who fetch it have
                the same.

        Raises:
            InputError: a file is missing or damaged in the store, there is no room for it, there is no such state, or
                as `Store`.
        """
        while True:
            found, document = self._newest() if number is None else (number, self._state(number))
            files = {name: _File(*values) for name, values in document["files"].items()}
            odd = self._fetch(files, set(choose(list(files))))
            if not odd:
                self._base = files
                return
            if number is not None or self._newest()[0] == found:  # else it was just replaced by another process
                raise InputError(f"{self.url}/{odd} is missing or damaged, which the newest state names")

    def _fetch(self, files: dict[str, _File], wanted: set[str]) -> str:
        """Downloads what the local folder lacks and removes what is not wanted; returns what could not be had."""
        self._fetched = wanted
        for name, path in files_of(self.path, hidden=True):
            if name not in wanted or self._measured(name, path) != files[name]:
                path.unlink()
        for folder, _, _ in os.walk(self.path, topdown=False):
            if folder != str(self.path) and not os.listdir(folder):
                os.rmdir(folder)
        for name, file in files.items():
            path = self.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if name not in wanted or path.exists():
                continue
            if not download(self.store, file.object_name(name), path, file.sha256, file.size):
                return name
        return ""

    def publish(self, alone: bool = False) -> None:
        """Makes what is in the local folder the newest state, beside what others added meanwhile.

        Args:
            alone: the files belong together, so that what others added meanwhile is an error.

        Raises:
            LeaseLostError: the lease of `held` was taken over.
            InputError: as `Store`, or for `alone`; the state is that of before.
        """
        with self._publishing:
            files = {name: self._uploaded(name, path) for name, path in files_of(self.path)}
            gone = {name for name in self._base if name not in files and self._is_gone(name)}
            # What is as it was when it was fetched may have been replaced or removed by others since.
            changed = {name: file for name, file in files.items() if self._base.get(name) != file}
            if not changed and not gone:
                return
            before: set[str] = set()

            def merged(document: dict[str, Any]) -> dict[str, Any]:
                there = {name: _File(*values) for name, values in self._leased(document)["files"].items()}
                if alone and there not in (self._base, files):  # these, if a request was repeated
                    raise InputError(f"{self.url}: another process published there meanwhile; what it published stays")
                before.clear()
                before.update(file.object_name(name) for name, file in there.items())
                return {**document, "files": {name: there[name] for name in there.keys() - gone} | changed}

            after = self._update(merged)["files"]
            self._base = {name: self._base[name] for name in self._base.keys() - gone} | changed
            self._fetched |= changed.keys()
            self._remove(sorted(before - {file.object_name(name) for name, file in after.items()}))

    def _remove(self, names: list[str]) -> None:
        """Deletes objects that no state needs any more; where the store refuses, what was published is there anyway."""
        try:
            self.store.remove(names)
        except InputError as error:
            if not self._warned:  # once, for without permission each update would say so
                logging.getLogger(__name__).warning("objects that nothing needs any more stay: %s", error)
            self._warned = True

    def _is_gone(self, name: str) -> bool:
        """Whether a file that is not in the local folder was removed there; if it never was, its folder says so."""
        return name in self._fetched or not (self.path / name).parent.is_dir()

    def _uploaded(self, name: str, path: Path) -> _File:
        """Uploads a file unless the state has it already."""
        file = self._measured(name, path)
        if file == self._base.get(name):
            return file
        # What is uploaded must not change meanwhile: a link keeps a file that is replaced, a copy one that grows.
        fixed = self.path.parent / temporary_name(path.name)
        try:
            (shutil.copyfile if name.endswith(_APPENDED) else os.link)(path, fixed)
            file = self._measured(name, fixed)
            self.store.put(fixed, file.object_name(name))
        finally:
            fixed.unlink(missing_ok=True)
        return file

    def _measured(self, name: str, path: Path) -> _File:
        stat = path.stat()
        look = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        if self._looks.get(name, (None,))[0] != look:
            self._looks[name] = (look, measured(path))
        return self._looks[name][1]

    @contextlib.contextmanager
    def held(self, report: Callable[[str], None]) -> Iterator[None]:
        """Keeps other trainers out while the context lasts, by a lease in the state that is renewed by a thread.

        A lease of another process is waited for: until it is given back, renewed, or has ended.

        Args:
            report: called with a line where that takes time, and if the lease of a process that is gone is taken over.

        Raises:
            BusyError: another process has the lease and was heard of meanwhile; the line names it.
            InputError: as `Store`, or the store cannot create an object exclusively.
        """
        token, ended = uuid.uuid4().hex, threading.Event()

        def taken(document: dict[str, Any]) -> dict[str, Any]:
            lease = document["lease"]
            if lease and lease["token"] != token:
                if _silence(lease) < LEASE_SECONDS:
                    raise self._busy(lease)
                report(f"{self.url} was being trained {_holder(lease)}; its lease is taken over")
            return {**document, "lease": _lease(token)}

        if self.store.create(_PROBE, b"") and self.store.create(_PROBE, b""):
            raise InputError(f"{self.url}: this store replaces objects that are to be created: no run is safe in it")
        self._wait_for_lease(report)
        thread = threading.Thread(target=self._renew, args=(ended,), name="lease", daemon=True)
        self._token = token
        try:
            self._update(taken)  # the store may have the lease though no answer came
            thread.start()
            yield
        finally:
            ended.set()
            if thread.is_alive():
                thread.join()
            with contextlib.suppress(InputError):  # what it cannot give back ends by itself
                self._update(lambda document: {**self._leased(document), "lease": None})
            self._token = ""

    def _wait_for_lease(self, report: Callable[[str], None]) -> None:
        """Returns once no other process has a lease; raises a BusyError if one has it that is still there."""
        first = None
        while (lease := self._newest()[1]["lease"]) and _silence(lease) < LEASE_SECONDS:
            if first is None:
                first = lease
                left = f"{LEASE_SECONDS - _silence(lease):.0f} s at most"
                report(f"{self.url} is or was being trained {_holder(lease)}: waiting for a sign of it, {left}")
            elif lease != first:
                raise self._busy(lease)
            time.sleep(LEASE_SECONDS / _RENEWALS / _LOOKS)

    def _busy(self, lease: dict[str, Any]) -> BusyError:
        return BusyError(f"{self.url} is being trained already, {_holder(lease)}")

    def _renew(self, ended: threading.Event) -> None:
        while not ended.wait(LEASE_SECONDS / _RENEWALS):
            try:
                self._update(lambda document: {**self._leased(document), "lease": _lease(self._token)})
            except LeaseLostError as error:
                logging.getLogger(__name__).warning("%s", error)
                return
            except InputError as error:
                logging.getLogger(__name__).warning("the lease cannot be renewed now: %s", error)

    def _leased(self, document: dict[str, Any]) -> dict[str, Any]:
        """A state, if this process may change it: it has the lease, or never had one."""
        lease = document["lease"]
        if self._token and (lease or {}).get("token") != self._token:
            holder = lease["holder"] if lease else "another process, which has ended"
            raise LeaseLostError(f"{self.url} was taken over by {holder}; nothing of this training goes there any more")
        return document

    def _newest(self) -> tuple[int, dict[str, Any]]:
        """The number and the contents of the newest state; 0 and an empty one if there is none."""
        numbers = [int(name[:-5]) for name in self.store.names("state") if name[:-5].isdecimal()]
        number, contents = max([self._number, *numbers]), None
        if number:
            contents = self.store.read(self._state_name(number))
            if contents is None:
                raise InputError(f"{self.url}: its listing names a state that is gone; try again")
        # A listing may lag behind what was made.
        while (later := self.store.read(self._state_name(number + 1))) is not None:
            number, contents = number + 1, later
        if contents is None:
            return 0, {"files": {}, "lease": None}
        self._number = number
        return number, self._parsed(number, contents)

    def _state(self, number: int) -> dict[str, Any]:
        contents = self.store.read(self._state_name(number))
        if contents is None:
            raise InputError(f"{self.url}/{self._state_name(number)} is gone; try again")
        return self._parsed(number, contents)

    def _parsed(self, number: int, contents: bytes) -> dict[str, Any]:
        try:
            document = json.loads(contents)
            return {"files": document["files"], "lease": document["lease"]}
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{self.url}/{self._state_name(number)} is damaged: {error}") from None

    def _update(self, change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
        """Makes a changed state the newest; `change` may be called again with a state that another process made."""
        with self._updating:
            for _ in range(_TRIES):
                number, document = self._newest()
                document = change(document)
                if self.store.create(self._state_name(number + 1), json.dumps(document, indent=1).encode()):
                    self._number = number + 1
                    if number >= _KEPT_STATES:
                        self._remove([self._state_name(number + 1 - _KEPT_STATES)])
                    return document
        raise InputError(f"{self.url}: others write there all the time; try again")

    @staticmethod
    def _state_name(number: int) -> str:
        return f"state/{number:012d}.json"


def mirror_of(path: str | os.PathLike[str]) -> Mirror | None:
    """The mirror of this process that a local path is in, if it is in one."""
    folder = Path(os.path.abspath(path))
    return next((_MIRRORS[each] for each in (folder, *folder.parents) if each in _MIRRORS), None)


def with_urls(text: str) -> str:
    """A text, with URLs in place of the paths of their mirrors."""
    for path, mirror in _MIRRORS.items():
        text = text.replace(str(path), mirror.url)
    return text


def origin(path: str | os.PathLike[str]) -> str:
    """What another machine finds a path by: within a mirror its URL, else the absolute path."""
    return str(path).rstrip("/") if is_url(path) else with_urls(os.path.abspath(path))


def local(path: str) -> str:
    """The path here of what `origin` returned; a URL that has no mirror yet is fetched, which raises as `Mirror`."""
    if not is_url(path):
        return path
    for mirror in _MIRRORS.values():
        within = f"{mirror.path}{path.removeprefix(mirror.url)}"
        if path == mirror.url or (path.startswith(f"{mirror.url}/") and os.path.exists(within)):
            return within
    mirror = Mirror(path)
    mirror.fetch()
    return str(mirror.path)


def publishing(path: str | os.PathLike[str]) -> Callable[[], None]:
    """What publishes a folder while it is worked on: its mirror, or for other folders nothing.

    A store that cannot be reached for a while is a warning, for the next call publishes what is missing.
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
    """Downloads an object; returns whether it was there with this SHA-256 and size. Else there is no file."""
    temporary = path.with_name(temporary_name(path.name))
    try:
        if not store.get(name, temporary) or measured(temporary) != (expected, size):
            return False
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return True


def measured(path: Path) -> _File:
    """The SHA-256 and the size of a file."""
    return _File(sha256(path), path.stat().st_size)


def files_of(folder: Path, hidden: bool = False) -> list[tuple[str, Path]]:
    """The files below a folder by their names there; what is temporary or only local has a dot in front or a name."""
    found = [(path.relative_to(folder), path) for path in sorted(folder.rglob("*")) if path.is_file()]
    return [
        (name.as_posix(), path)
        for name, path in found
        if hidden or not (name.parts[0] in _LOCAL or any(part.startswith(".") for part in name.parts))
    ]


def _lease(token: str) -> dict[str, Any]:
    return {"token": token, "holder": f"process {os.getpid()} on {socket.gethostname()}", "time": time.time()}


def _silence(lease: dict[str, Any]) -> float:
    """Seconds since the holder of a lease was last heard of."""
    return max(0.0, time.time() - lease["time"])


def _holder(lease: dict[str, Any]) -> str:
    return f"by {lease['holder']}, last heard of {_silence(lease):.0f} s ago"


def _free_slot(url: str) -> Path:
    """A folder for a mirror of a URL that no other process has; what is in it is of former ones."""
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
        for path in list(slot.rglob(".*.tmp")):  # of processes that were killed; a link of an upload keeps its space
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        return slot
    raise AssertionError

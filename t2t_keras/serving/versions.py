"""Watches the directory of a model for versions, and serves those that the policy selects and that can be loaded."""

import contextlib
import dataclasses
import functools
import gc
import logging
import os
import pathlib
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from t2t_keras.machine.heaps import give_back, make_in_new_thread
from t2t_keras.serving.model_configs import VersionPolicy
from t2t_keras.serving.request_errors import Code, ServingError, invalid, serving_error
from t2t_keras.serving.served_models import DEFAULT_LOADER, Model

_LOG = logging.getLogger(__name__)

# Names, sizes and modification times of the files in a directory, to detect changes.
_Fingerprint = tuple[tuple[str, int, int], ...]


@dataclasses.dataclass(frozen=True)
class _Failure:
    """A version that could not be loaded: its files, the number of attempts, and the time of the last one."""

    fingerprint: _Fingerprint
    tries: int
    at: float


@dataclasses.dataclass(frozen=True)
class VersionStatus:
    """The status of a version.

    Attributes:
        version: version number.
        state: "LOADING", "AVAILABLE", "UNLOADING" or "END", as in TensorFlow Serving.
        error: why the version could not be loaded, or None.
    """

    version: int
    state: str
    error: ServingError | None = None


class Versions:
    """Watches a model's directory and lends the served versions to requests.

    The latest loadable version is served, or those that a policy selects. A new version is loaded and warmed up while
    the old one is served. It then replaces the old one, which is unloaded after the last request that uses it. If the
    directory of a served version disappears, the latest remaining version is served. If none remains, the loaded one
    stays in service.

    Args:
        export_dir: directory of the model. Each subdirectory whose name is a number is a version.
        name: name of the model, for messages.
        max_retries: number of retries after a version fails to load; the count restarts when its files change.
        retry_seconds: time between a failure and the next attempt.
        load: loads a model, given the directory and the number of a version, and returns it ready to serve.
        on_unload: called with each version that is unloaded, from any thread and while a lock is held.

    Attributes:
        export_dir: directory of the model.
        thread: the thread that watches the directory, or None before `start`.
    """

    def __init__(
        self,
        export_dir: str | pathlib.Path,
        name: str,
        max_retries: int = 5,
        retry_seconds: float = 60.0,
        load: Callable[[pathlib.Path, int], Model] = DEFAULT_LOADER,
        on_unload: Callable[[Model], None] = lambda model: None,
    ) -> None:
        self.export_dir = pathlib.Path(export_dir)
        self._on_unload = on_unload
        self._name = name
        self._max_retries = max_retries
        self._retry_seconds = retry_seconds
        self._load = load
        self._lock = threading.Lock()
        self._poll_lock = threading.Lock()
        self._policy = VersionPolicy()
        self._labels: Mapping[str, int] = {}
        self._labels_before: dict[str, int] = {}  # old versions of labels whose new versions have not been served yet
        self._served: dict[int, Model] = {}
        self._uses: dict[Model, int] = {}
        self._statuses: dict[int, VersionStatus] = {}
        self._failures: dict[int, _Failure] = {}
        self._last_warning = ""
        self._replaced: weakref.WeakSet[Model] = weakref.WeakSet()  # models whose changed files were reported
        self._changed = False  # whether versions came or went since `_freeze_objects`
        self._stopped = threading.Event()
        self.thread: threading.Thread | None = None

    def start(self, poll_seconds: float) -> None:
        """Polls now, and then every `poll_seconds` in a background thread."""
        self.poll()
        self.thread = threading.Thread(target=self._watch, args=(poll_seconds,), name="versions", daemon=True)
        self.thread.start()

    def stop(self) -> None:
        """Stops watching the directory. A load in progress cannot be interrupted and may still be running."""
        self._stopped.set()

    def set_policy(self, policy: VersionPolicy, labels: Mapping[str, int]) -> None:
        """Sets the policy, which takes effect at the next `poll`, and the labels.

        A label that moves to a different version continues to refer to the old one until the new one is served.
        """
        with self._lock:
            previous = {label: self._resolve(label) for label in self._labels}
            self._policy, self._labels = policy, labels
            self._labels_before = {
                label: number for label, number in previous.items() if labels.get(label, number) not in self._served
            }

    def withdraw(self) -> None:
        """Stops watching and retires all versions; each one is unloaded after its last request."""
        self._stopped.set()
        with self._poll_lock:
            self._retire(())

    @property
    def served(self) -> int | None:
        """The number of the latest served version, or None."""
        with self._lock:
            return max(self._served, default=None)

    def number(self, version: int | str | None) -> int | None:
        """Returns the version number of a label; a number or None is returned unchanged.

        Raises:
            ServingError: the label is unknown.
        """
        with self._lock:
            return self._resolve(version)

    def _resolve(self, version: int | str | None) -> Any:
        """See `number`. The lock must be held."""
        if not isinstance(version, str):
            return version
        if version not in self._labels:
            raise invalid(f"Unrecognized servable version label: {version}")
        previous = self._labels_before.get(version)
        return previous if previous in self._served else self._labels[version]

    @contextlib.contextmanager
    def lend(self, version: int | str | None = None) -> Iterator[Model]:
        """Lends a version, which stays loaded within the `with` block, or longer with `keep`.

        Args:
            version: number, label, or None for the latest version.

        Raises:
            ServingError: the label is unknown, or the version is not served.
        """
        with self._lock:
            number = self._resolve(version)
            model = self._served.get(max(self._served, default=-1) if number is None else number)
            if not model:
                servable = f"Latest({self._name})" if number is None else f"Specific({self._name}, {number})"
                raise ServingError(Code.NOT_FOUND, f"Servable not found for request: {servable}")
            self._uses[model] += 1
        try:
            yield model
        finally:
            self.release(model)

    def keep(self, model: Model) -> None:
        """Keeps a lent model loaded beyond the block, until `release` is called."""
        with self._lock:
            self._uses[model] += 1

    def release(self, model: Model) -> None:
        with self._lock:
            self._uses[model] -= 1
            self._forget_unused(model)

    def statuses(self) -> list[VersionStatus]:
        """Returns the status of each known version, the latest first."""
        with self._lock:
            return sorted(self._statuses.values(), key=lambda status: -status.version)

    def poll(self) -> None:
        """Scans the directory once and loads the selected versions; retires all others if at least one is served."""
        with self._poll_lock:
            if not self._stopped.is_set():
                self._poll()
                if self._changed:
                    self._changed = False
                    _freeze_objects()

    def _poll(self) -> None:
        try:
            directories = _find_versions(self.export_dir)
        except OSError as error:
            self._warn_once(f"{self.export_dir}: {error.strerror}")
            return
        policy, selection = self._policy, set[int]()
        missing = sorted((policy.specific or set()) - set(directories))
        if missing:
            self._warn_once(
                f"{self.export_dir}: no version {', '.join(map(str, missing))}, which the version policy selects"
            )
        else:
            self._warn_once(
                "" if directories else f"{self.export_dir}: no version, which is a directory with a number as its name"
            )
        self._forget_missing(directories)
        self._warn_of_changes(directories)
        for version in policy.candidates(directories):
            if policy.max_versions is not None and len(selection) >= policy.max_versions:
                break
            if version in self._served or self._try(directories[version], version):
                selection.add(version)
        if selection:
            with self._lock:  # versions that a label still refers to
                selection |= {number for label, number in self._labels_before.items() if label in self._labels}
            self._retire(selection)

    def _watch(self, poll_seconds: float) -> None:
        while not self._stopped.wait(poll_seconds):
            try:
                self.poll()
            except Exception:
                # No error may end the polling.
                _LOG.exception("searching for versions of %s failed", self._name)

    def _warn_once(self, message: str) -> None:
        """Logs a problem with the whole directory; a message that repeats is logged once."""
        if message and message != self._last_warning:
            _LOG.warning("%s", message)
        self._last_warning = message

    def _warn_of_changes(self, directories: dict[int, pathlib.Path]) -> None:
        """Warns once if the files of a served version were replaced; as in TensorFlow Serving, it is not reloaded."""
        for version in self._served.keys() & directories.keys():
            model = self._served[version]
            if not model.is_as_loaded and model not in self._replaced:
                self._replaced.add(model)
                _LOG.warning(
                    "the files of version %d of %s have changed since it was loaded, and it is not reloaded: give the "
                    "new files a new version number, or restart the server",
                    version,
                    self._name,
                )

    def _forget_missing(self, directories: dict[int, pathlib.Path]) -> None:
        """Forgets versions whose directories have disappeared, except those that are still loaded."""
        with self._lock:
            for version in set(self._statuses) - set(directories):
                self._failures.pop(version, None)
                if self._statuses[version].state == "END":
                    del self._statuses[version]

    def _try(self, path: pathlib.Path, version: int) -> bool:
        """Loads a version and serves it, unless a retry is not due; returns whether the version is served."""
        fingerprint, failure = _fingerprint(path), self._failures.get(version)
        tries = 1
        if failure and failure.fingerprint == fingerprint:
            is_due = time.monotonic() >= failure.at + self._retry_seconds
            if failure.tries > self._max_retries or not is_due:
                return False
            tries = failure.tries + 1
        _LOG.info("loading version %d of %s from %s", version, self._name, path)
        start = time.monotonic()
        with self._lock:
            self._statuses[version] = VersionStatus(version, "LOADING")
        try:
            model = make_in_new_thread(functools.partial(self._load, path, version))
        except Exception as error:
            cause = serving_error(error)
            if cause.code is Code.FAILED_PRECONDITION:  # this server does not support the version, so do not retry
                tries = self._max_retries + 1
            self._failures[version] = _Failure(fingerprint, tries, time.monotonic())
            self._refuse(version, tries, cause)
            return False
        self._serve(model)
        self._failures.pop(version, None)
        _LOG.info("serving version %d of %s, loaded in %.1f s", version, self._name, time.monotonic() - start)
        return True

    def _refuse(self, version: int, tries: int, cause: ServingError) -> None:
        message = " ".join(cause.message.split())
        retry = f"in {self._retry_seconds:g} s" if tries <= self._max_retries else "when its files change"
        _LOG.error("version %d of %s cannot be loaded: %s; next attempt %s", version, self._name, message, retry)
        with self._lock:
            self._statuses[version] = VersionStatus(version, "END", ServingError(cause.code, message))

    def _serve(self, model: Model) -> None:
        """Adds a model to the served versions."""
        with self._lock:
            self._served[model.version] = model
            self._uses[model] = 0
            self._changed = True
            new_labels = {label for label, number in self._labels.items() if number == model.version}
            self._labels_before = {k: v for k, v in self._labels_before.items() if k not in new_labels}
            self._statuses[model.version] = VersionStatus(model.version, "AVAILABLE")

    def _retire(self, selection: Collection[int]) -> None:
        """Stops serving all versions except `selection`; each one is unloaded after its last request."""
        with self._lock:
            for version in set(self._served) - set(selection):
                model = self._served.pop(version)
                self._statuses[version] = VersionStatus(version, "UNLOADING")
                self._forget_unused(model)

    def _forget_unused(self, model: Model) -> None:
        """Unloads a model that is neither served nor in use. The lock must be held."""
        if model is self._served.get(model.version) or self._uses[model]:
            return
        del self._uses[model]
        self._changed = True
        # A version that was reloaded in the meantime has a newer status.
        if self._statuses.get(model.version) == VersionStatus(model.version, "UNLOADING"):
            self._statuses[model.version] = VersionStatus(model.version, "END")
        self._on_unload(model)
        _LOG.info("version %d of %s is unloaded", model.version, self._name)


def _freeze_objects() -> None:
    """Frees the remains of unloaded versions and excludes all live objects from garbage collection (`gc.freeze`).

    Otherwise, several times a minute, a collection would traverse the models' graphs, which takes about 0.3 s and
    blocks all requests. The function does nothing unless the program has called `gc.freeze` before.
    """
    if gc.get_freeze_count():
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        give_back()  # about 200 MB per version of a small model


def _find_versions(export_dir: pathlib.Path) -> dict[int, pathlib.Path]:
    """Returns the directory of each version by number; other entries are ignored."""
    entries = sorted(entry.path for entry in os.scandir(export_dir) if entry.is_dir() and _is_number(entry.name))
    return {int(os.path.basename(path)): pathlib.Path(path) for path in entries}


def _is_number(name: str) -> bool:
    # Versions are 64-bit integers in TensorFlow Serving.
    return name.isascii() and name.isdigit() and int(name) < 1 << 63


def _fingerprint(path: pathlib.Path) -> _Fingerprint:
    fingerprint = []
    for file in sorted(path.rglob("*")):
        with contextlib.suppress(OSError):  # deleted in the meantime
            stat = file.stat()
            fingerprint.append((str(file.relative_to(path)), stat.st_size, stat.st_mtime_ns))
    return tuple(fingerprint)

"""The models that a configuration names, each with its versions, and what follows the configuration's file."""

import contextlib
import functools
import logging
import pathlib
import threading
import time
from collections.abc import Callable, Sequence

from t2t_keras.errors import InputError, explained
from t2t_keras.serving.model_configs import ModelSettings, parse_model_configs
from t2t_keras.serving.options import ServingOptions
from t2t_keras.serving.request_errors import Code, ServingError
from t2t_keras.serving.served_models import Model, Substitutes, ready_model
from t2t_keras.serving.versions import Versions

_LOG = logging.getLogger(__name__)


class ConfiguredModels:
    """The models of a server, by name; they can change while it runs, from any thread.

    Args:
        options: names a model, or the file of a configuration, which is read again when it changes.
        around_load: returns a context manager, within which each version is loaded.
        substitutes: see `Substitutes`.
        on_unload: called with each version that is unloaded.

    Raises:
        InputError: the configuration's file is faulty.
    """

    def __init__(
        self,
        options: ServingOptions,
        around_load: Callable[[], contextlib.AbstractContextManager[None]],
        substitutes: Substitutes,
        on_unload: Callable[[Model], None] = lambda model: None,
    ) -> None:
        self._options = options
        self._load = functools.partial(ready_model, substitutes=substitutes)
        self._around_load = around_load
        self._on_unload = on_unload
        self._lock = threading.Lock()
        self._text = ""
        self._complaint = ""
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        if options.model_config_file:
            self._text = _text(options.model_config_file)
            settings = parse_model_configs(self._text, options.model_config_file)
        else:
            settings = (ModelSettings(options.model_name, options.export_dir),)
        self._versions = {model.name: self._made(model) for model in settings}
        self._moving: dict[str, Versions] = {}  # where models will be, of which no version is there yet

    @property
    def names(self) -> list[str]:
        return list(self._versions)

    @property
    def first(self) -> Versions:
        """The versions of the first model, which the page shows."""
        return next(iter(self._versions.values()))

    @property
    def are_served(self) -> bool:
        return all(versions.served is not None for versions in self._versions.values())

    def get(self, name: str) -> Versions | None:
        return self._versions.get(name)

    def start(self) -> None:
        """Loads what can be loaded of each model, then follows their directories and the configuration's file.

        Raises:
            InputError: there are no substitutes for a model, and no version of it is served.
        """
        for name, versions in self._versions.items():
            versions.start(self._options.poll_seconds)
            errors = [status.error for status in versions.statuses() if status.error]
            refusals = [error.message for error in errors if error.code is Code.FAILED_PRECONDITION]
            if versions.served is None and refusals:
                raise InputError(f"{name}: {refusals[0]}")
        self._thread = threading.Thread(target=self._follow, name="configuration", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stops following; a load, which cannot be interrupted, may still be running."""
        self._stopped.set()
        followed = [*self._versions.values(), *self._moving.values()]
        for versions in followed:
            versions.stop()
        deadline = time.monotonic() + 1
        for thread in [self._thread, *(versions.thread for versions in followed)]:
            if thread:
                thread.join(max(deadline - time.monotonic(), 0))

    def configure(self, settings: Sequence[ModelSettings]) -> None:
        """Serves these models from now on: loads new ones, applies new policies and labels, and withdraws the others.

        It returns when what can be loaded is loaded. A model whose directory changes is served from the old one until a
        version of the new one is loaded, be it later.

        Raises:
            ServingError: UNKNOWN, as TensorFlow Serving has it, if a model that is new, or in another directory, has no
                version that could be loaded; all else is applied.
        """
        with self._lock:
            if self._stopped.is_set():
                raise ServingError(Code.UNAVAILABLE, "the server is stopping")
            before = [*self._versions.values(), *self._moving.values()]
            after, moving, failed = dict[str, Versions](), dict[str, Versions](), []
            for model in settings:
                old = self._versions.get(model.name)
                versions = self._following(model)
                if versions is not old and versions.served is None:
                    failed.append(f"{model.name} from {versions.export_dir}")
                    if old and old.served is not None:
                        versions, moving[model.name] = old, versions
                after[model.name] = versions
            self._versions, self._moving = after, moving
            followed = [*after.values(), *moving.values()]
            if self._stopped.is_set():  # while this loaded: `stop` knew only those before
                for versions in followed:
                    versions.stop()
            for versions in before:
                if versions not in followed:
                    versions.withdraw()
            _LOG.info("the models are now %s", ", ".join(after))
            if failed:
                raise ServingError(Code.UNKNOWN, f"no version could be loaded of {', '.join(failed)}; see the log")

    def look(self) -> None:
        """Reads the configuration's file once, and applies it if it has changed; a faulty one is logged, once."""
        path = self._options.model_config_file
        try:
            text = _text(path)
            if text == self._text:
                self._complaint = ""
                return
            settings = parse_model_configs(text, path)
        except InputError as error:
            if str(error) != self._complaint:
                _LOG.error("%s; the models stay as they are", error)
            self._complaint = str(error)
            return
        self._text, self._complaint = text, ""
        try:
            self.configure(settings)
        except ServingError as error:
            _LOG.error("%s: %s", path, error.message)

    def _following(self, model: ModelSettings) -> Versions:
        """The versions in a model's directory, those that are wanted and can be loaded; the same object as before."""
        for versions in (self._versions.get(model.name), self._moving.get(model.name)):
            if versions and versions.export_dir == pathlib.Path(model.base_path):
                versions.choose(model.policy, model.labels)
                versions.poll()
                return versions
        versions = self._made(model)
        versions.start(self._options.poll_seconds)
        return versions

    def _move(self) -> None:
        """Serves models from their new directories, of which a version has come."""
        with self._lock:
            for name, versions in list(self._moving.items()):
                if versions.served is not None:
                    old = self._versions[name]
                    self._versions = self._versions | {name: self._moving.pop(name)}
                    old.withdraw()
                    _LOG.info("%s is served from %s now", name, versions.export_dir)

    def _made(self, model: ModelSettings) -> Versions:
        options = self._options
        versions = Versions(
            model.base_path,
            model.name,
            options.max_num_load_retries,
            options.load_retry_seconds,
            self._load,
            around_load=self._around_load,
            on_unload=self._on_unload,
        )
        versions.choose(model.policy, model.labels)
        return versions

    def _follow(self) -> None:
        while not self._stopped.wait(self._options.poll_seconds):
            try:
                if self._options.model_config_file:
                    self.look()
                self._move()
            except Exception:
                # No error may end the looking.
                _LOG.exception("following the configuration of models failed")


def _text(path: str) -> str:
    try:
        with explained(path), open(path, encoding="utf-8") as file:
            return file.read()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not valid UTF-8: {error.reason} at byte {error.start}") from error

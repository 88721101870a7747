"""Manages the models listed in a configuration, and reloads the configuration file when it changes."""

import logging
import pathlib
import threading
import time
from collections.abc import Callable, Sequence

from t2t_keras.errors import InputError, explained
from t2t_keras.serving.model_configs import ModelSettings, parse_model_configs
from t2t_keras.serving.options import ServingOptions
from t2t_keras.serving.request_errors import Code, ServingError
from t2t_keras.serving.served_models import Loader, Model
from t2t_keras.serving.versions import Versions

_LOG = logging.getLogger(__name__)


class ConfiguredModels:
    """The models of a server, by name. Thread-safe; the models can be reconfigured while the server runs.

    Args:
        options: settings with the directory of one model, or with a configuration file, which is reloaded when it
            changes.
        loader: loads the versions.
        on_unload: called with each version that is unloaded.

    Raises:
        InputError: the configuration file is invalid.
    """

    def __init__(
        self,
        options: ServingOptions,
        loader: Loader,
        on_unload: Callable[[Model], None],
    ) -> None:
        self._options = options
        self._loader = loader
        self._on_unload = on_unload
        self._lock = threading.Lock()
        self._text = ""
        self._last_error = ""
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        if options.model_config_file:
            self._text = _read_text(options.model_config_file)
            settings = parse_model_configs(self._text, options.model_config_file)
        else:
            settings = (ModelSettings(options.model_name, options.export_dir),)
        self._versions = {model.name: self._make(model) for model in settings}
        # New directories of models that are still served from their old ones, because no new version is loaded yet.
        self._successors: dict[str, Versions] = {}

    @property
    def names(self) -> list[str]:
        return list(self._versions)

    @property
    def first(self) -> Versions:
        """The versions of the first model, which the web page at "/" shows."""
        return next(iter(self._versions.values()))

    @property
    def are_served(self) -> bool:
        return all(versions.served is not None for versions in self._versions.values())

    def get(self, name: str) -> Versions | None:
        return self._versions.get(name)

    def start(self) -> None:
        """Loads the models, then watches their directories and the configuration file in the background.

        Versions that fail to load do not raise an error; they are retried.

        Raises:
            InputError: no version of a model could be served, and at least one failed because the server cannot meet
                its requirements (FAILED_PRECONDITION), for instance because the engine does not support a setting.
        """
        for name, versions in self._versions.items():
            versions.start(self._options.poll_seconds)
            errors = [status.error for status in versions.statuses() if status.error]
            refusals = [error.message for error in errors if error.code is Code.FAILED_PRECONDITION]
            if versions.served is None and refusals:
                raise InputError(f"{name}: {refusals[0]}")
        self._thread = threading.Thread(target=self._watch, name="configuration", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stops watching for changes. A load that is in progress cannot be interrupted and may still be running."""
        self._stopped.set()
        all_versions = [*self._versions.values(), *self._successors.values()]
        for versions in all_versions:
            versions.stop()
        deadline = time.monotonic() + 1
        for thread in [self._thread, *(versions.thread for versions in all_versions)]:
            if thread:
                thread.join(max(deadline - time.monotonic(), 0))

    def configure(self, settings: Sequence[ModelSettings]) -> None:
        """Replaces the served models: loads new ones, applies new policies and labels, and withdraws the others.

        Returns after one attempt to load each selected version. If the directory of a model changes, the model is
        served from its old directory until a version in the new one is loaded, which may be after the call returns.

        Raises:
            ServingError: with code UNKNOWN, as in TensorFlow Serving, if no version of a new or moved model could be
                loaded; the rest of the configuration is applied nevertheless. With code UNAVAILABLE if the server is
                stopping.
        """
        with self._lock:
            if self._stopped.is_set():
                raise ServingError(Code.UNAVAILABLE, "the server is stopping")
            previous = [*self._versions.values(), *self._successors.values()]
            current, moving, failures = dict[str, Versions](), dict[str, Versions](), []
            for model in settings:
                old = self._versions.get(model.name)
                versions = self._versions_for(model)
                if versions is not old and versions.served is None:
                    failures.append(f"{model.name} from {versions.export_dir}")
                    if old and old.served is not None:
                        versions, moving[model.name] = old, versions
                current[model.name] = versions
            self._versions, self._successors = current, moving
            all_versions = [*current.values(), *moving.values()]
            if self._stopped.is_set():  # `stop` was called during the loading above, and did not see the new models
                for versions in all_versions:
                    versions.stop()
            for versions in previous:
                if versions not in all_versions:
                    versions.withdraw()
            _LOG.info("the models are now %s", ", ".join(current))
            if failures:
                raise ServingError(Code.UNKNOWN, f"no version could be loaded for {', '.join(failures)}; see the log")

    def check_file(self) -> None:
        """Checks the configuration file once and applies it if it has changed; an error is logged only once."""
        path = self._options.model_config_file
        try:
            text = _read_text(path)
            if text == self._text:
                self._last_error = ""
                return
            settings = parse_model_configs(text, path)
        except InputError as error:
            if str(error) != self._last_error:
                _LOG.error("%s; the models are unchanged", error)
            self._last_error = str(error)
            return
        self._text, self._last_error = text, ""
        try:
            self.configure(settings)
        except ServingError as error:
            _LOG.error("%s: %s", path, error.message)

    def _versions_for(self, model: ModelSettings) -> Versions:
        """Returns the `Versions` object that watches a model's directory, updated; creates one for a new directory."""
        for versions in (self._versions.get(model.name), self._successors.get(model.name)):
            if versions and versions.export_dir == pathlib.Path(model.base_path):
                versions.set_policy(model.policy, model.labels)
                versions.poll()
                return versions
        versions = self._make(model)
        versions.start(self._options.poll_seconds)
        return versions

    def _switch_directories(self) -> None:
        """Switches models to their new directories once a version in them is loaded."""
        with self._lock:
            for name, versions in list(self._successors.items()):
                if versions.served is not None:
                    old = self._versions[name]
                    self._versions = self._versions | {name: self._successors.pop(name)}
                    old.withdraw()
                    _LOG.info("%s is served from %s now", name, versions.export_dir)

    def _make(self, model: ModelSettings) -> Versions:
        options = self._options
        versions = Versions(
            model.base_path,
            model.name,
            options.max_num_load_retries,
            options.load_retry_seconds,
            self._loader,
            on_unload=self._on_unload,
        )
        versions.set_policy(model.policy, model.labels)
        return versions

    def _watch(self) -> None:
        while not self._stopped.wait(self._options.poll_seconds):
            try:
                if self._options.model_config_file:
                    self.check_file()
                self._switch_directories()
            except Exception:
                # No error may end this thread.
                _LOG.exception("watching the configuration of models failed")


def _read_text(path: str) -> str:
    try:
        with explained(path), open(path, encoding="utf-8") as file:
            return file.read()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not valid UTF-8: {error.reason} at byte {error.start}") from error

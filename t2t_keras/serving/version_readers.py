"""Objects that are made from the files of a model version for its first request."""

import logging
import pathlib
import threading
import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

from t2t_keras.errors import InputError
from t2t_keras.serving.request_errors import Code, ServingError
from t2t_keras.serving.served_models import Model

_LOG = logging.getLogger(__name__)

Reader = TypeVar("Reader")


class VersionReaders(Generic[Reader]):
    """Thread-safe cache of one object per model version.

    Args:
        make: makes the object from the directory of a version; raises an `InputError` if the version's files or
            settings do not allow that.
    """

    def __init__(self, make: Callable[[pathlib.Path], Reader]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._readers: weakref.WeakKeyDictionary[Model, Reader | InputError] = weakref.WeakKeyDictionary()

    def of(self, model: Model) -> Reader:
        """Returns the object for a version, and makes it from the version's files at the first call.

        Raises:
            InputError: the version's files or settings do not allow the object.
            ServingError: the files were deleted or replaced since the version was loaded.
        """
        with self._lock:
            if model not in self._readers:
                if not model.is_as_loaded:
                    raise ServingError(
                        Code.UNAVAILABLE, f"the files of version {model.version} are missing or have changed"
                    )
                try:
                    self._readers[model] = self._make(model.path)
                except InputError as error:  # raised for each request, without reading the files again
                    _LOG.warning("version %d: %s", model.version, error)
                    self._readers[model] = error
            reader = self._readers[model]
        if isinstance(reader, InputError):
            raise InputError(str(reader))  # a copy, because an exception keeps the frames through which it passed
        return reader

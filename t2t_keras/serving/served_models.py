"""Loads a version of a model from a SavedModel and warms it up."""

import contextlib
import dataclasses
import json
import logging
import pathlib
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  (registers its ops, which a SavedModel can hold)
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2
from tensorflow_serving.apis import get_model_metadata_pb2, prediction_log_pb2

from t2t_keras.errors import InputError
from t2t_keras.export_contract import CONFIG_FILE, GRAPH_FILE, SERVING_DEFAULT, WARM_UP_FILE
from t2t_keras.machine import streams
from t2t_keras.machine.files import sha256
from t2t_keras.serving.answer_cache import repeatable
from t2t_keras.serving.parts import check_rows
from t2t_keras.serving.request_errors import Code, ServingError, invalid
from t2t_keras.serving.served_signatures import Arrays, Function, Signature

_LOG = logging.getLogger(__name__)

_PROBE = b"<context> Hello."  # question-answering models have a symbol `<context>`; others read it as a word

# A function that takes a version's directory, and returns functions that run in place of some of the graph's, by name
# of the signature. It raises an `InputError` if these functions do not support a setting of the version.
Substitutes = Callable[[pathlib.Path], Mapping[str, Function]]


def no_substitutes(path: pathlib.Path) -> Mapping[str, Function]:
    """Replaces no signatures, so the graph serves all of them."""
    return {}


class Model:
    """A loaded version of a model.

    Args:
        path: directory of the SavedModel.
        version: version number.
        substitutes: returns replacements for some of the signatures; see `Substitutes`.

    Attributes:
        path: directory of the SavedModel.
        version: version number.
        signatures: signatures by name.
        signature_defs: the signatures as described in the SavedModel.
        about: "source_language", "target_language" and "task", if the export records them. With "directions", pairs of
            languages, a source needs a tag in front, such as "<2de> " for the target language "de".

    Raises:
        ServingError: a file is missing or damaged, TensorFlow cannot load the graph, or `substitutes` rejects the
            version.
        tf.errors.OpError: TensorFlow cannot read the weights.
    """

    def __init__(self, path: pathlib.Path, version: int, substitutes: Substitutes = no_substitutes) -> None:
        self.path, self.version = path, version
        self._fingerprint = _fingerprint(path)
        graph = _meta_graph(path)
        self.signature_defs = get_model_metadata_pb2.SignatureDefMap(signature_def=graph.signature_def)
        config = _config(path)
        # Outputs of an export that samples are not cached, although sampling is deterministic given the text.
        repeatable_names = set() if _section(config, "decode").get("sampling") else repeatable(graph)
        self.about = _description(config)
        self._tags = _required_tags(config) if "directions" in self.about else ()
        _check_files(path, config)
        functions = _substitute(path, substitutes)
        if (path / CONFIG_FILE).is_file():
            # Graph rewriting is the slowest step of loading and does not speed up exports of this project. Other
            # SavedModels may benefit from it.
            tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
        # The variables live only as long as this object.
        self._loaded = _load(path)
        weakref.finalize(self, _free, _resources(self._loaded)).atexit = False
        self.signatures = {
            name: _signature(name, function, functions.get(name), name in repeatable_names)
            for name, function in self._loaded.signatures.items()
        }

    @property
    def is_as_loaded(self) -> bool:
        """Whether the directory still holds the loaded graph, judged by the size and modification time of its file."""
        return self._fingerprint == _fingerprint(self.path)

    def signature(self, name: str) -> Signature:
        """Returns a signature by name; "" means the default signature.

        Raises:
            ServingError: there is no signature with this name.
        """
        name = name or SERVING_DEFAULT
        if name not in self.signatures:
            known = ", ".join(repr(known) for known in sorted(self.signatures))
            raise ServingError(
                Code.INVALID_ARGUMENT, f'Serving signature name: "{name}" not found in signature def; there are {known}'
            )
        return self.signatures[name]

    def check_tags(self, inputs: Arrays) -> None:
        """Checks that each text names its target language, if the model translates in several directions.

        Without a tag, the model would translate into an arbitrary language.

        Args:
            inputs: arrays by name that match one of the model's signatures.

        Raises:
            ServingError: a text that is not blank does not begin with the tag of a target language.
        """
        if not self._tags or "text" not in inputs:
            return
        for text in inputs["text"].ravel():
            if text.strip() and not text.lstrip().startswith(self._tags):
                tags = [tag.decode() for tag in self._tags]
                raise invalid(
                    f"'text': each text must begin with the tag of its target language, {' or '.join(tags)}; for "
                    f"example '{tags[0]} Good morning.'"
                )

    def warm_up(self) -> int:
        """Runs the warm-up requests of the version; may raise any exception.

        The requests run in parallel, because TensorFlow prepares each signature on a single core. It allocates the
        signature's objects in the heap of the first calling thread, so the threads are kept alive as long as the model
        (see `machine.heaps`).

        Returns:
            Number of requests.
        """
        file = self.path / WARM_UP_FILE
        if not file.exists():
            return 0
        try:
            records = list(tf.data.TFRecordDataset(str(file)).as_numpy_iterator())
        except tf.errors.DataLossError as error:
            raise ServingError(Code.DATA_LOSS, f"{WARM_UP_FILE} is damaged: {error.message}") from error
        self._warmers = ThreadPoolExecutor(streams.num_streams(), thread_name_prefix="warm-up")
        return len(list(self._warmers.map(self._run_record, records)))

    def check_answer(self) -> None:
        """Runs the default signature on one line of text, if it takes lines of text; may raise any exception.

        This also tests versions without warm-up requests before they are served.
        """
        signature = self.signatures.get(SERVING_DEFAULT)
        if not signature or [spec.dtype for spec in signature.inputs.values()] != [tf.string] or not signature.in_rows:
            return
        (name,) = signature.inputs
        try:
            outputs = signature.run({name: np.array([_PROBE], object)})
        except tf.errors.InvalidArgumentError:
            if (self.path / CONFIG_FILE).is_file():
                raise
            return  # not an export of this project: its strings may be images, and rejecting a text shows that it runs
        check_rows(outputs, 1)
        for name, array in outputs.items():
            if array.dtype.kind == "f" and np.isnan(array).any():
                raise ServingError(
                    Code.DATA_LOSS,
                    f"the output {name!r} of {SERVING_DEFAULT!r} contains NaN; the weights may be damaged",
                )

    def _run_record(self, record: bytes) -> None:
        log = prediction_log_pb2.PredictionLog.FromString(record)
        if (kind := log.WhichOneof("log_type")) != "predict_log":
            _LOG.warning(
                "%s: a warm-up request other than predict, which this server does not support: %s", WARM_UP_FILE, kind
            )
            return
        request = log.predict_log.request
        signature = self.signature(request.model_spec.signature_name)
        signature.check_names(request.inputs)
        signature.run({name: np.asarray(tf.make_ndarray(tensor)) for name, tensor in request.inputs.items()})


@dataclasses.dataclass(frozen=True)
class Loader:
    """Loads versions of models.

    Attributes:
        substitutes: returns replacements for some of a version's signatures; see `Substitutes`.
        context: returns a context manager that is active while a version is loaded.
    """

    substitutes: Substitutes = no_substitutes
    context: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext

    def __call__(self, path: pathlib.Path, version: int) -> Model:
        """Loads a version, warms it up and checks an output; may raise any exception.

        Args:
            path: directory of the SavedModel.
            version: version number.
        """
        with self.context():
            model = Model(path, version, self.substitutes)
            model.warm_up()
            model.check_answer()
        return model


DEFAULT_LOADER = Loader()


def _fingerprint(path: pathlib.Path) -> tuple[int, int] | None:
    """Returns the size and modification time of the graph's file, or None if the file cannot be accessed."""
    with contextlib.suppress(OSError):
        stat = (path / GRAPH_FILE).stat()
        return stat.st_size, stat.st_mtime_ns
    return None


def _meta_graph(path: pathlib.Path) -> meta_graph_pb2.MetaGraphDef:
    file = path / GRAPH_FILE
    try:
        proto = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    except FileNotFoundError as error:
        raise ServingError(Code.NOT_FOUND, f"{file}: no such file") from error
    except DecodeError as error:
        raise ServingError(Code.DATA_LOSS, f"{file} is damaged, or is not a SavedModel") from error
    for graph in proto.meta_graphs:
        if "serve" in graph.meta_info_def.tags:
            return graph
    raise ServingError(
        Code.DATA_LOSS, f"{file} has no graph with the tag 'serve': it is damaged, or was not exported for a server"
    )


def _substitute(path: pathlib.Path, substitutes: Substitutes) -> Mapping[str, Function]:
    try:
        return substitutes(path)
    except InputError as error:
        raise ServingError(Code.FAILED_PRECONDITION, str(error)) from error


def _signature(name: str, function: Any, substitute: Function | None, is_repeatable: bool) -> Signature:
    inputs, outputs = function.structured_input_signature[1], function.structured_outputs
    return Signature(name, inputs, outputs, substitute or function, is_repeatable)


def _load(path: pathlib.Path) -> Any:
    """Loads a SavedModel and raises a `ServingError` with a readable message if TensorFlow cannot interpret it."""
    try:
        return tf.saved_model.load(str(path))
    except (tf.errors.OpError, OSError):
        raise  # the message names the file
    except Exception as error:
        raise ServingError(
            Code.DATA_LOSS,
            f"{path}/{GRAPH_FILE} cannot be loaded by TensorFlow {tf.__version__}: it is damaged, or needs a newer "
            f"version or other operations ({type(error).__name__}: {str(error)[:200]})",
        ) from error


def _resources(loaded: Any) -> list[tf.Tensor]:
    """Returns the handles of tables and vocabularies, which TensorFlow Text does not free with the model."""
    resource = tf.saved_model.experimental.TrackableResource
    trackables = tf.train.TrackableView(loaded).descendants()
    handles = [each.resource_handle for each in trackables if isinstance(each, resource)]
    return [handle for handle in handles if handle.dtype == tf.resource]


def _free(handles: Sequence[tf.Tensor]) -> None:
    for handle in handles:
        tf.raw_ops.DestroyResourceOp(resource=handle, ignore_lookup_error=True)


def _config(path: pathlib.Path) -> dict[str, Any]:
    """Returns the configuration of an export of this project; empty for any other SavedModel."""
    try:
        config = json.loads((path / CONFIG_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}


def _description(config: dict[str, Any]) -> dict[str, Any]:
    """Returns the languages, the directions and the task, if the configuration has them."""
    values = _section(config, "data")
    description = {name: values.get(name) for name in ("source_language", "target_language", "task")}
    about: dict[str, Any] = {name: value for name, value in description.items() if isinstance(value, str)}
    directions, tag = values.get("directions"), _section(config, "decode").get("tag")
    # A fixed tag leaves one direction, in which sources need no tag.
    if isinstance(directions, list) and directions and not tag and all(map(_is_direction, directions)):
        about["directions"] = [each.split("-", 1) for each in directions]
    return about


def _required_tags(config: dict[str, Any]) -> tuple[bytes, ...]:
    """Returns the tags of which each text needs one in front; empty if the model also learned texts without a tag."""
    tags = _section(config, "data").get("tags") or [f"<2{target}>" for _, target in _description(config)["directions"]]
    return tuple(dict.fromkeys(map(str.encode, tags))) if all(tags) else ()


def _is_direction(value: Any) -> bool:
    return isinstance(value, str) and value.count("-") == 1


def _section(config: dict[str, Any], name: str) -> dict[str, Any]:
    section = config.get(name)
    return section if isinstance(section, dict) else {}


def _check_files(path: pathlib.Path, config: dict[str, Any]) -> None:
    """Verifies the checksums of an export; a model with a damaged vocabulary would run, but translate wrongly."""
    checksums = _section(config, "export").get("sha256")
    for name, checksum in checksums.items() if isinstance(checksums, dict) else ():
        file = path / name
        if not file.is_file():
            raise ServingError(Code.NOT_FOUND, f"{file}: no such file")
        if sha256(file) != checksum:
            raise ServingError(Code.DATA_LOSS, f"{file} is damaged: its SHA-256 is not that of {CONFIG_FILE}")
